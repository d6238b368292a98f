"""tests/rules/installed.py: compiles programs against an installed qkv, as a user of pkg-config does."""
import os
import pathlib
import subprocess


def pkg_config(prefix, *arguments):
    """What pkg-config says about the qkv that is installed under this prefix, and about no other."""
    found = next(pathlib.Path(prefix).rglob("qkv.pc"), None)
    if found is None:
        raise FileNotFoundError(f"no qkv.pc under {prefix}")
    answer = subprocess.run(["pkg-config", *arguments, "qkv"], env=os.environ | {"PKG_CONFIG_LIBDIR": str(found.parent)},
                            check=True, capture_output=True, text=True)
    return answer.stdout.split()


def run(*command):
    """The output of a command; where it fails, an AssertionError with all it said."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise AssertionError(f"{command} gave exit code {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def compile_and_run(compiler, prefix, source, program):
    """The output of a program made of one source file. qkv and the C++ library are all it may need."""
    libdir = pkg_config(prefix, "--variable=libdir")[0]
    run(compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", source, "-o", program,
        *pkg_config(prefix, "--cflags", "--libs"), f"-Wl,-rpath,{libdir}")
    return run(program)
