#!/usr/bin/env python3
"""tests/rules/readme_test.py: the programs in README.md compile against the installed package and print what it says.

  readme_test.py PREFIX COMPILER

A block marked `cpp` is a whole program, and the next block, marked `text`, is what it prints. A block marked `cmake`
is part of the consumer project that consumer_test.py builds. A block marked `console` is a command `$ qkv ...` and part
of what it prints."""
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import installed

PREFIX, COMPILER = sys.argv[1:] if len(sys.argv) == 3 else sys.exit(__doc__)
ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(text):
    """(language, content) of every fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Readme(unittest.TestCase):
    def setUp(self):
        self.blocks = blocks((ROOT / "README.md").read_text(encoding="utf-8"))

    def test_every_program_prints_what_is_said(self):
        programs = [number for number, (language, _) in enumerate(self.blocks) if language == "cpp"]
        self.assertGreater(len(programs), 0)
        for number in programs:
            source = self.blocks[number][1]
            with self.subTest(source=source), tempfile.TemporaryDirectory() as folder:
                language, stated = self.blocks[number + 1]
                self.assertEqual(language, "text", "a block of output follows a program")
                file = pathlib.Path(folder, "snippet.cpp")
                file.write_text(source, encoding="utf-8")
                self.assertEqual(installed.compile_and_run(COMPILER, PREFIX, file, pathlib.Path(folder, "snippet")), stated)

    def test_every_command_prints_what_is_shown(self):
        sessions = [content for language, content in self.blocks if language == "console"]
        self.assertGreater(len(sessions), 0)
        for session in sessions:
            command, _, shown = session.partition("\n")
            self.assertRegex(command, r"^\$ qkv ")
            self.assertIn(shown, installed.run(pathlib.Path(PREFIX, "bin/qkv"), *command.split()[2:]))

    def test_the_cmake_lines_are_those_of_the_consumer_that_is_built(self):
        consumer = (ROOT / "tests/consumer/CMakeLists.txt").read_text(encoding="utf-8")
        shown = [content for language, content in self.blocks if language == "cmake"]
        self.assertGreater(len(shown), 0)
        for content in shown:
            self.assertIn(content, consumer)

    def test_its_length_is_that_of_a_page_or_two(self):
        lines = (ROOT / "README.md").read_text(encoding="utf-8").count("\n")
        self.assertTrue(100 <= lines <= 150, f"README.md has {lines} lines; STYLE asks for 100 to 150")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
