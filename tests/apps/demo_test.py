#!/usr/bin/env python3
"""tests/apps/demo_test.py: what `qkv demo` draws.

  demo_test.py PROGRAM"""
import os
import pathlib
import pty
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import PROGRAM, CommandTest


class Demo(CommandTest):
    def on_terminal(self, environment):
        """What `qkv demo` writes to a terminal."""
        ours, theirs = pty.openpty()
        with subprocess.Popen([PROGRAM, "demo"], stdout=theirs, env=environment) as process:
            os.close(theirs)
            text = b""
            while True:
                try:
                    part = os.read(ours, 4096)
                except OSError:  # Linux says the end of a terminal so
                    part = b""
                if not part:
                    break
                text += part
        os.close(ours)
        self.assertEqual(process.returncode, 0)
        return text.decode()

    def test_three_sentences_are_drawn_and_their_padding_gets_nothing(self):
        result = self.run_qkv("demo")
        self.expect_success(result)
        self.assertEqual(result.stdout.count("Sentence "), 3)
        self.assertEqual(result.stdout.count("Together the weights of the padding are 0."), 2)
        maps = re.split(r"Sentence \d", result.stdout)[1:]
        for text in maps:
            rows = re.findall(r"^ *[a-z]+ │(.*)│$", text, re.MULTILINE)
            words, padding = int(re.search(r": (\d+) words", text).group(1)), text.count("(pad)")
            self.assertEqual(len(rows), words)
            self.assertEqual(words + padding, 6)
            for row in rows:
                blank = len(row) - len(row.rstrip(" "))
                self.assertEqual(blank, padding * len(" (pad) "), row)
                self.assertNotIn(" ", row.rstrip(" "))

    def test_colour_is_for_terminals_whose_user_wants_it(self):
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.assertIn("\x1b[48;2;", self.on_terminal(environment))
        self.assertNotIn("\x1b", self.on_terminal({**environment, "NO_COLOR": "1"}))
        self.assertNotIn("\x1b", self.run_qkv("demo").stdout)


if __name__ == "__main__":
    unittest.main()
