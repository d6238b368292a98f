#!/usr/bin/env python3
"""tests/rules/headers_alone_test.py: every public header compiles alone, with no warning, in g++ and clang++.

  headers_alone_test.py COMPILER...       each a program; one that is not installed is skipped aloud"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow",
         "-Wpedantic", "-Werror"]
compilers = sys.argv[1:]


def compile_alone(compiler, header, folder=INCLUDE):
    """Includes the header twice, in a file of its own: a missing `#pragma once` shows too."""
    source = f"#include <{header}>\n#include <{header}>\nint main() {{}}\n"
    return subprocess.run([compiler, *FLAGS, "-I", str(folder), "-x", "c++", "-"], input=source, text=True,
                          capture_output=True)


class HeadersAlone(unittest.TestCase):
    def installed(self):
        for compiler in compilers:
            with self.subTest(compiler=compiler):
                if shutil.which(compiler) is None:
                    self.skipTest(f"{compiler} is not installed")
                yield compiler

    def test_every_public_header_compiles_alone(self):
        headers = sorted(str(path.relative_to(INCLUDE)) for path in INCLUDE.rglob("*.h"))
        self.assertGreater(len(headers), 10)
        for compiler in self.installed():
            for header in headers:
                with self.subTest(header=header):
                    result = compile_alone(compiler, header)
                    self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_header_that_lacks_an_include_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "bad.h").write_text("#pragma once\nstd::vector<int> numbers();\n")
            for compiler in self.installed():
                self.assertNotEqual(compile_alone(compiler, "bad.h", folder).returncode, 0)


if __name__ == "__main__":
    if not compilers:
        sys.exit(__doc__)
    unittest.main(argv=sys.argv[:1], verbosity=2)
