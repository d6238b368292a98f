#!/usr/bin/env python3
"""tests/apps/inspect_test.py: `qkv inspect`: what is in a file, for people and for programs.

  inspect_test.py PROGRAM"""
import json
import pathlib
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import CommandTest
from npy import Array

NAN, INF = float("nan"), float("inf")


def safetensors(tensors, metadata=None):
    """A file of these (name, dtype, shape, bytes) in their order."""
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


TENSORS = [
    ("steps", "I64", [], struct.pack("<q", 2**60 + 1)),
    ("layer.weight", "F32", [2, 3], struct.pack("<6f", 1, -2, 3.5, NAN, INF, -INF)),
    ("half", "F16", [2], struct.pack("<2e", 0.5, 2)),
    ("brain", "BF16", [1], b"\xc0\x3f"),
    ("mask", "BOOL", [4], b"\1\0\0\0"),
    ("nothing", "F64", [0, 7], b""),
    ("lost", "F64", [1], struct.pack("<d", NAN)),
    ("small", "F8_E4M3", [1500], bytes(1500)),
    ("rank 9", "F32", [1] * 9, bytes(4)),
]


class Inspect(CommandTest):
    def inspect(self, content, *options):
        (self.folder / "m.safetensors").write_bytes(content)
        return self.run_qkv("inspect", "m.safetensors", *options)

    def shown(self, *arguments):
        result = self.inspect(*arguments)
        self.expect_success(result)
        return result.stdout

    def test_the_table_lines_up(self):
        self.assertEqual(self.shown(safetensors(TENSORS, {"format": "pt", "note": "two\nlines"})), """\
name          dtype    shape                          size
steps         I64      []                              8 B
layer.weight  F32      [2, 3]                         24 B
half          F16      [2]                             4 B
brain         BF16     [1]                             2 B
mask          BOOL     [4]                             4 B
nothing       F64      [0, 7]                          0 B
lost          F64      [1]                             8 B
small         F8_E4M3  [1500]                       1.5 kB
rank 9        F32      [1, 1, 1, 1, 1, 1, 1, 1, 1]     4 B

metadata
format    pt
note      two�lines

9 tensors, 1516 parameters, 1.55 kB
""")

    def test_stats_are_of_the_finite_elements(self):
        lines = self.shown(safetensors(TENSORS), "--stats").splitlines()
        self.assertEqual(lines[0].split()[4:], ["min", "max", "mean", "nan", "inf"])
        stats = {line.split("  ")[0]: line.split()[-5:] for line in lines[1:10]}
        self.assertEqual(stats, {
            "steps": [str(2**60 + 1), str(2**60 + 1), "1.15292e+18", "0", "0"],
            "layer.weight": ["-2", "3.5", "0.833333", "1", "2"],
            "half": ["0.5", "2", "1.25", "0", "0"],
            "brain": ["1.5", "1.5", "1.5", "0", "0"],
            "mask": ["0", "1", "0.25", "0", "0"],
            "nothing": ["-", "-", "-", "0", "0"],
            "lost": ["-", "-", "-", "1", "0"],
            "small": ["-"] * 5,
            "rank 9": ["-"] * 5,
        })

    def test_elements_that_are_not_aligned_are_looked_at_too(self):
        out = json.loads(self.shown(safetensors([("a", "BOOL", [1], b"\1"), ("b", "F64", [1], struct.pack("<d", 3))]),
                                    "--stats", "--json"))
        self.assertEqual(out["tensors"][1]["min"], 3)

    def test_json_is_one_object_with_exact_numbers_and_names(self):
        odd = 'a"\x1b[2J\n\x7f\u0085 ü漢𝄞'
        text = self.shown(safetensors([*TENSORS[:2], (odd, "U8", [1], b"x")], {odd: odd}), "--json", "--stats")
        self.assertTrue(text.isascii() and text.count("\n") == 1 and "\x1b" not in text and "\x7f" not in text.replace("\n", ""))
        self.assertEqual(json.loads(text), {
            "file": "m.safetensors",
            "format": "safetensors",
            "metadata": {odd: odd},
            "parameters": 8,
            "bytes": 33,
            "tensors": [
                {"name": "steps", "dtype": "I64", "shape": [], "parameters": 1, "bytes": 8, "min": 2**60 + 1,
                 "max": 2**60 + 1, "mean": 2.0**60, "nan": 0, "inf": 0},
                {"name": "layer.weight", "dtype": "F32", "shape": [2, 3], "parameters": 6, "bytes": 24, "min": -2,
                 "max": 3.5, "mean": 2.5 / 3, "nan": 1, "inf": 2},
                {"name": odd, "dtype": "U8", "shape": [1], "parameters": 1, "bytes": 1},
            ],
        })
        self.assertNotIn("min", json.loads(self.shown(safetensors(TENSORS), "--json"))["tensors"][0])

    def test_control_characters_do_not_reach_the_terminal(self):
        odd = "a\x1b[2J\r\x7f\u009b\u202eb"
        text = self.shown(safetensors([(odd, "U8", [1], b"x")], {odd: odd}))
        for character in "\x1b\r\x7f\u009b\u202e":
            self.assertNotIn(character, text)
        self.assertEqual(text.count("\n"), 7)

    def test_a_file_without_tensors_has_sums(self):
        self.assertEqual(self.shown(safetensors([])), "0 tensors, 0 parameters, 0 B\n")

    def test_npy_files_are_shown_in_the_same_way(self):
        self.put(a=Array((2, 3), [1, 2, 3, 4, 5, NAN], "<f8"))
        result = self.run_qkv("inspect", "a.npy", "--stats")
        self.expect_success(result)
        self.assertEqual(result.stdout, """\
name     dtype    shape   size  min  max  mean  nan  inf
(array)  float64  [2, 3]  48 B    1    5     3    1    0

1 tensor, 6 parameters, 48 B
""")
        result = json.loads(self.run_qkv("inspect", "a.npy", "--json").stdout)
        self.assertEqual((result["format"], result["tensors"][0]["shape"]), ("npy", [2, 3]))

    def test_broken_files_are_one_line_and_exit_code_1(self):
        whole = safetensors(TENSORS)
        for content, part in [
            (b"", "'m.safetensors': it is no safetensors file: it has 0 bytes"),
            (b"no tensors at all", "it is no safetensors file"),
            (whole[:100], "truncated"),
            (whole[:-1], "it is truncated: its tensors take 1554 bytes, 1553 follow the header"),
            (whole + b"x", "too long"),
            (whole.replace(b'"BF16"', b'"BF17"'), "tensor 'brain': its dtype 'BF17' is none"),
            (whole.replace(b'"half"', b'"mask"'), "tensor 'mask': its name comes twice"),
            (safetensors([("a\x1b\n", "F32", [2], bytes(4))]), "tensor 'a\\x1b\\x0a': F32 of shape [2] takes 8 bytes"),
        ]:
            with self.subTest(part):
                self.expect_failure(self.inspect(content), 1, "qkv inspect: cannot read", part)
        self.expect_failure(self.inspect(safetensors([("m", "BOOL", [1], b"\2")]), "--stats"), 1, "tensor 'm': its bool element 0")
        self.expect_failure(self.run_qkv("inspect", "none"), 1, "'none': No such file or directory")
        self.expect_failure(self.run_qkv("inspect", "."), 1, "it is a directory")
        self.put(a=b"\x93NUMPY nonsense")
        self.expect_failure(self.run_qkv("inspect", "a.npy"), 1, "'a.npy'")

    def test_wrong_usage_is_one_line_and_exit_code_2(self):
        for arguments, part in [([], "file is required"), (["a", "b"], "b"), (["a", "--nonsense"], "--nonsense")]:
            self.expect_failure(self.run_qkv("inspect", *arguments), 2, part, "--help shows the usage")


if __name__ == "__main__":
    unittest.main()
