#!/usr/bin/env python3
"""tests/apps/demo_test.py: what `qkv demo` draws.

  demo_test.py PROGRAM"""
import collections
import math
import os
import pathlib
import pty
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import PROGRAM, CommandTest


class Students(CommandTest):
    KEYS = ["John Doe", "Jane Roe", "Joan Smith", "Don Jones", "Maria Garcia", "Wei Chen"]

    def setUp(self):
        super().setUp()
        result = self.run_qkv("demo", "students")
        self.expect_success(result)
        self.text = result.stdout

    def columns(self, title):
        """The numbers of a picture, by the headings of its columns."""
        heading, *lines = re.search(rf"^{title}\n((?:.+\n)+)", self.text, re.MULTILINE).group(1).splitlines()
        rows = [[float(cell.split()[-1]) for cell in line.split("│")[1:]] for line in lines if "│" in line]
        return dict(zip(re.split(r"  +", heading.strip()), zip(*rows)))

    def pairs(self, name):
        text = f" {name.lower()} "
        return collections.Counter(text[i:i + 2] for i in range(len(text) - 1))

    def cosine(self, a, b):
        a, b = self.pairs(a), self.pairs(b)
        return sum(a[pair] * b[pair] for pair in a) / math.sqrt(
            sum(n * n for n in a.values()) * sum(n * n for n in b.values()))

    def test_an_exact_query_is_one_hot_and_a_misspelled_one_finds_nothing(self):
        weights = self.columns("Weights")
        self.assertEqual(weights["John Doe"], (1, 0, 0, 0, 0, 0))
        self.assertEqual(weights["Jon Doe"], (0, 0, 0, 0, 0, 0))
        self.assertIn('The query "John Doe" finds psychology.', self.text)
        self.assertIn('The query "Jon Doe" finds nothing.', self.text)

    def test_a_soft_query_weighs_by_the_softmax_of_the_scores(self):
        weights, answers = self.columns("Weights, at temperatures"), self.columns("The answer: majors, weighted")
        for temperature in ["0.03", "0.1", "0.3"]:
            shares = [math.exp(self.cosine("Jon Doe", name) / float(temperature)) for name in self.KEYS]
            for drawn, share in zip(weights[temperature], shares):
                self.assertAlmostEqual(drawn, share / sum(shares), delta=0.0051)  # two decimals are drawn
            psychology = (shares[0] + shares[2]) / sum(shares)
            self.assertAlmostEqual(answers[temperature][0], psychology, delta=0.0051)
            self.assertAlmostEqual(sum(answers[temperature]), 1, delta=0.021)

    def test_rising_temperature_leads_to_the_average(self):
        best = [column[0] for column in self.columns("Weights, at temperatures").values()]
        self.assertEqual(best, sorted(best, reverse=True))
        self.assertEqual(self.columns("Weights, at temperatures")["average"], (0.17,) * 6)
        self.assertEqual(self.columns("The answer: majors, weighted")["average"], (0.33, 0.33, 0.17, 0.17))


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

    def test_every_line_fits_into_80_columns(self):
        for line in self.run_qkv("demo").stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)

    def test_each_part_can_be_seen_alone(self):
        students, sentences = self.run_qkv("demo", "students").stdout, self.run_qkv("demo", "sentences").stdout
        self.assertNotIn("Sentence", students)
        self.assertNotIn("John Doe", sentences)
        self.assertEqual(self.run_qkv("demo").stdout, f"{students}\n{sentences}")

    def test_colour_is_for_terminals_whose_user_wants_it(self):
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.assertIn("\x1b[48;2;", self.on_terminal(environment))
        self.assertNotIn("\x1b", self.on_terminal({**environment, "NO_COLOR": "1"}))
        self.assertNotIn("\x1b", self.run_qkv("demo").stdout)


if __name__ == "__main__":
    unittest.main()
