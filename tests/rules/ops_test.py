#!/usr/bin/env python3
"""tests/rules/ops_test.py: every op that qkv/ops.h declares has a row in the table that the generic suites walk."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DECLARATION = re.compile(r"^QKV_API (?:Variable|std::vector<Variable>|\w+) (\w+)\(", re.MULTILINE)
ROW = re.compile(r'\.op = "(\w+)"')


def forgotten(header, table):
    """The ops of the header's text that the table's text has no row for."""
    rows = set(ROW.findall(table))
    return sorted(set(DECLARATION.findall(header)) - rows)


class Ops(unittest.TestCase):
    def test_every_op_has_a_row(self):
        header = (ROOT / "include/qkv/ops.h").read_text(encoding="utf-8")
        table = (ROOT / "tests/ops/table.cpp").read_text(encoding="utf-8")
        self.assertGreater(len(DECLARATION.findall(header)), 20)
        self.assertEqual(forgotten(header, table), [])

    def test_an_op_without_a_row_is_named(self):
        header = ("QKV_API Variable known(const Variable& x);\nQKV_API Variable lost(const Variable& x,\n  int y);\n"
                  "QKV_API std::vector<Variable> parts(const Variable& x);\n")
        self.assertEqual(forgotten(header, '{.op = "known"},'), ["lost", "parts"])


if __name__ == "__main__":
    unittest.main()
