#!/usr/bin/env python3
"""tests/apps/tour_test.py: docs/tour.md shows what its commands print.

  tour_test.py PROGRAM"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else sys.exit(__doc__)
ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools/make_tour.py"


class Tour(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = pathlib.Path(folder.name, "page.md")

    def made_from(self, text):
        self.page.write_text(text, encoding="utf-8")
        self.result = subprocess.run([sys.executable, "-B", SCRIPT, PROGRAM, self.page], capture_output=True, text=True)
        return self.page.read_text(encoding="utf-8")

    def test_the_page_is_what_the_script_makes_now(self):
        tour = (ROOT / "docs/tour.md").read_text(encoding="utf-8")
        self.maxDiff = None
        self.assertEqual(self.made_from(tour), tour, "run tools/make_tour.py")
        self.assertEqual((self.result.returncode, self.result.stderr), (0, ""))

    def test_its_commands_fit_the_page(self):
        for line in (ROOT / "docs/tour.md").read_text(encoding="utf-8").splitlines():
            self.assertLessEqual(len(line), 125, line)

    def test_what_is_not_printed_any_more_is_replaced(self):
        page = "Text.\n\n```console\n$ echo new > file\n$ cat \\\n    file\nold\n```\n\n```text\n$ echo\n```\n"
        self.assertEqual(self.made_from(page), page.replace("old", "new"))

    def test_the_program_is_the_one_that_was_named(self):
        page = self.made_from("```console\n$ qkv --version\n```\n")
        version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True).stdout
        self.assertEqual(page, f"```console\n$ qkv --version\n{version}```\n")

    def test_a_command_that_fails_leaves_the_page_alone(self):
        page = "```console\n$ qkv attend none.txt none.txt none.txt\n```\n"
        self.assertEqual(self.made_from(page), page)
        self.assertEqual(self.result.returncode, 1)
        self.assertIn("exit code 1 of: qkv attend none.txt", self.result.stderr)


if __name__ == "__main__":
    unittest.main()
