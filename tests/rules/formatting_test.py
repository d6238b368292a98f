#!/usr/bin/env python3
"""tests/rules/formatting_test.py: every C++ file is as clang-format 14 writes it, with .clang-format of this repository.

  formatting_test.py CLANG_FORMAT"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["include", "src", "bench", "apps", "examples", "tests"]
CLANG_FORMAT = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)


def misformatted(files):
    """Those that clang-format would change."""
    command = [CLANG_FORMAT, f"--style=file:{ROOT}/.clang-format", "--dry-run", "-Werror"]
    return [str(file) for file in files if subprocess.run([*command, file], capture_output=True).returncode != 0]


class Formatting(unittest.TestCase):
    maxDiff = None

    def test_every_file_is_formatted(self):
        files = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cpp"))
        self.assertGreater(len(files), 20)
        self.assertEqual(misformatted(files), [], "./dev format mends these")

    def test_a_badly_formatted_file_is_seen(self):
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
            file.write("int  main( ){return 0 ;}\n")
            file.flush()
            self.assertEqual(misformatted([file.name]), [file.name])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
