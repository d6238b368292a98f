"""tests/rules/symbols.py: what a shared library needs from outside and what it shows, by binutils' nm."""
import re
import subprocess

# What prints. Whoever prints through <stdio.h> to a stream needs `stdout` or `stderr`; the rest name neither.
PRINTS = {"stdout", "stderr", "printf", "vprintf", "__printf_chk", "__vprintf_chk", "wprintf", "vwprintf", "puts",
          "putchar", "putwchar", "perror", "psignal", "warn", "warnx", "err", "errx", "error", "syslog",
          "_ZSt4cout", "_ZSt4cerr", "_ZSt4clog", "_ZSt5wcout", "_ZSt5wcerr", "_ZSt5wclog",
          "_ZNSt8ios_base4InitC1Ev"}  # the last is what including <iostream> leaves behind

# What ends the program. std::terminate is not among them: std::thread's own destructor names it.
ENDS = {"abort", "exit", "_exit", "_Exit", "quick_exit", "raise", "kill", "__assert_fail",
        "_ZSt21__glibcxx_assert_failPKciS0_S0_", "_ZN3hwy5AbortEPKciS1_z"}

# Functions, variables, type information and tables of namespace qkv.
OWN = re.compile(r"_Z(N[KVRO]*|T[ISV]N)3qkv")


def names(library, *flags):
    listed = subprocess.run(["nm", "-D", "-P", *flags, str(library)], check=True, capture_output=True, text=True).stdout
    return sorted(line.split()[0].split("@")[0] for line in listed.splitlines())


def needed(library):
    return names(library, "--undefined-only")


def shown(library):
    return names(library, "--defined-only")


def printing(library):
    return [name for name in needed(library) if name in PRINTS]


def ending(library, asserts):
    """`asserts`: the library was compiled with them, so that it may need __assert_fail and nothing else."""
    return [name for name in needed(library) if name in ENDS and not (asserts and name == "__assert_fail")]


def foreign(library):
    return [name for name in shown(library) if not OWN.match(name)]
