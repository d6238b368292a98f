#!/usr/bin/env python3
"""tests/apps/text_test.py: small arrays as text, read and printed by `qkv attend`.

  text_test.py PROGRAM"""
import math
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import naive
from harness import CommandTest, floats
from npy import Array


def rows_of(text):
    """The numbers of a printed array, a list for each line; headings and blank lines are left out."""
    return [[float(word) for word in line.split()] for line in text.splitlines() if line and not line.startswith("#")]


class TextTest(CommandTest):
    Q, K, V = "0 2\n", "1 0\n0 1\n1 1\n", "10\n20\n30\n"

    def setUp(self):
        super().setUp()
        self.write(**{"q.txt": self.Q, "k.txt": self.K, "v.txt": self.V})

    def write(self, **files):
        for name, content in files.items():
            (self.folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def attend(self, *arguments, q="q.txt", k="k.txt", v="v.txt"):
        return self.run_qkv("attend", q, k, v, *arguments)

    def printed(self, *arguments, **files):
        result = self.attend(*arguments, **files)
        self.expect_success(result)
        return result.stdout

    def expect_rows(self, text, expected):
        rows = rows_of(text)
        self.assertEqual([len(row) for row in rows], [len(row) for row in expected], text)
        for row, expected_row in zip(rows, expected):
            for a, e in zip(row, expected_row):
                same = a == e or (math.isnan(a) and math.isnan(e))
                self.assertTrue(same or math.isclose(a, e, rel_tol=1e-5), f"{a} instead of {e}")  # six digits


class Printing(TextTest):
    def test_the_answers_are_printed_where_no_file_is_named(self):
        self.assertEqual(self.printed(), "23.3742\n")
        self.assertEqual(self.printed("-o", "-"), "23.3742\n")
        self.assertEqual(self.printed("-o", "out.npy"), "")
        self.assertAlmostEqual(self.get("out").values[0], 23.3742, 4)

    def test_several_results_have_headings(self):
        self.assertEqual(self.printed("--lse", "-", "--weights", "-"),
                         "# out\n23.3742\n\n# weights\n0.108383  0.445808  0.445808\n\n# lse\n2.22208\n")
        self.assertEqual(self.printed("--lse", "-", "-o", "out.npy"), "2.22208\n")

    def test_columns_are_below_each_other(self):
        self.write(**{"k.txt": "1 0\n0 1\n", "v.txt": "-100.5 7\n1 123456789\n", "q.txt": "900 0\n0 900\n-inf 0\n"})
        self.assertEqual(self.printed(), "-100.5            7\n     1  1.23457e+08\n   nan          nan\n")

    def test_matrices_of_a_batch_are_separated_and_named(self):
        self.write(**{"q.txt": "1\n\n2\n", "k.txt": "0\n0\n\n0\n0\n", "v.txt": "1\n3\n\n2\n4\n"})
        self.assertEqual(self.printed(), "# out[0]\n2\n\n# out[1]\n3\n")
        self.assertEqual(self.printed("--lse", "-"),
                         "# out[0]\n2\n\n# out[1]\n3\n\n# lse\n0.693147\n0.693147\n")

    def test_what_is_printed_can_be_read(self):
        self.write(**{"q.txt": "1 2\n3 4\n\n5 6\n7 8\n", "k.txt": "0 0\n\n0 0\n", "v.txt": "1.5 2\n\n-3 nan\n"})
        self.write(**{"v.txt": self.printed(), "k.txt": "0\n0\n\n0\n0\n", "q.txt": "0\n\n0\n"})
        self.expect_rows(self.printed(), [[1.5, 2], [-3, math.nan]])

    def test_four_axes_are_printed_with_both_places(self):
        q, k, v = floats((2, 2, 1, 3), 1), floats((2, 2, 4, 3), 2), floats((2, 2, 4, 2), 3)
        self.put(q=q, k=k, v=v)
        text = self.printed(q="q.npy", k="k.npy", v="v.npy")
        self.assertEqual([line for line in text.splitlines() if line.startswith("#")],
                         ["# out[0, 0]", "# out[0, 1]", "# out[1, 0]", "# out[1, 1]"])
        out = naive.attend(q, k, v).out.values
        self.expect_rows(text, [out[i:i + 2] for i in range(0, len(out), 2)])

    def test_an_array_without_elements_prints_nothing(self):
        self.put(q=Array((0, 2), [], "<f8"))
        self.assertEqual(self.printed(q="q.npy"), "")

    def test_a_result_cannot_be_a_text_file(self):
        for name in ["weights.csv", "weights.tsv", "weights.txt"]:
            self.expect_failure(self.attend("--weights", name), 2, f"--weights: '{name}' is no .npy file")
            self.assertFalse((self.folder / name).exists())


class Reading(TextTest):
    def test_commas_tabs_and_blanks_mean_the_same(self):
        expected = self.printed()
        self.write(**{"k.csv": "1,0\n 0 , 1\t\n1,1", "k.tsv": "1\t0\n 0\t1 \n1\t1\n", "k2.txt": "  1\t 0 \n0 1\n1   1"})
        for name in ["k.csv", "k.tsv", "k2.txt"]:
            self.assertEqual(self.printed(k=name), expected, name)

    def test_what_editors_and_people_add_is_no_number(self):
        expected = self.printed()
        for content in [b"\xef\xbb\xbf1 0\r\n0 1\r\n1 1\r\n", "\n\n1 0\n0 1\n1 1\n\n\n", "# keys\n1 0 # cat\n0 1\n#\n1 1",
                        "+1 -0\n0e5 1.\n1e0 .1e1\n"]:
            self.write(**{"k.txt": content})
            self.assertEqual(self.printed(), expected, content)

    def test_a_blank_line_begins_the_next_matrix(self):
        self.write(**{"q.txt": "1\n\n2\n\n\n3\n", "k.txt": "0\n0\n\n0\n0\n\n0\n0\n", "v.txt": "1\n3\n\n2\n4\n\n0\n9"})
        self.expect_rows(self.printed(), [[2], [3], [4.5]])

    def test_numbers_that_are_not_finite_are_numbers(self):
        self.write(**{"bias.csv": "0, -inf, -inf\n", "v.txt": "inf\nnan\n-infinity\n"})
        self.assertEqual(self.printed("--bias", "bias.csv"), "inf\n")

    def test_text_is_float64_and_gives_way_to_other_arrays(self):
        expected = [[23.3742]]
        self.expect_success(self.attend("-o", "out.npy"))
        self.assertEqual(self.get("out").descr, "<f8")
        for descr in ["<f2", "<f4", "<f8"]:
            self.put(k=Array((3, 2), [1, 0, 0, 1, 1, 1], descr))
            self.expect_rows(self.printed(k="k.npy"), expected)
            self.expect_success(self.attend("-o", "out.npy", k="k.npy"))
            self.assertEqual(self.get("out").descr, "<f8" if descr == "<f8" else "<f4")

    def test_masks_are_zeros_and_ones_and_lengths_whole_numbers(self):
        self.write(**{"keep.txt": "1 0 1\n", "drop.txt": "0 1 0\n", "keys.csv": "1,0,1\n", "cells.txt": "1\n",
                      "length.txt": "2\n", "lengths.txt": "2 # the only sequence\n"})
        without_second = self.printed("--keep", "keep.txt")
        self.assertEqual(self.printed("--drop", "drop.txt"), without_second)
        self.assertEqual(self.printed("--keep-keys", "keys.csv"), without_second)
        self.assertEqual(self.printed("--block-mask", "cells.txt", "--block-size", "1,3"), self.printed())
        self.assertEqual(self.printed("--lengths", "length.txt"), self.printed("--lengths", "lengths.txt"))

    def test_a_line_of_lengths_is_a_sequence(self):
        self.write(**{"q.txt": "0\n0\n\n0\n0\n", "k.txt": "0\n0\n\n0\n0\n", "v.txt": "2\n4\n\n6\n8\n",
                      "each.txt": "1\n2\n", "every.txt": "1 2\n2 1\n"})
        self.expect_rows(self.printed("--lengths", "each.txt"), [[2], [2], [7], [7]])
        self.expect_rows(self.printed("--lengths", "every.txt"), [[2], [3], [7], [6]])

    def test_vectors_may_be_a_line_or_a_column(self):
        self.write(**{"q.txt": "0\n\n0\n", "k.txt": "0\n0\n\n0\n0\n", "v.txt": "2\n4\n\n6\n8\n", "line.csv": "0,1\n",
                      "column.txt": "0\n1\n", "slope.txt": "1\n"})
        for name in ["line.csv", "column.txt"]:
            self.expect_rows(self.printed("--causal", f"offsets={name}"), [[2], [7]])
        self.expect_success(self.attend("--alibi", "slope.txt", "--align", "top_left"))

    def test_a_text_that_is_no_array_is_refused_with_its_line(self):
        for name, content, part in [
            ("k.txt", "", "there is no number in it"),
            ("k.txt", "# nothing\n\n", "there is no number in it"),
            ("k.txt", "1 0\n0 x\n", "line 2: 'x' is not a number"),
            ("k.txt", "1 0\n\n# one\n0 1,\n", "line 4: '1,' is not a number"),
            ("k.txt", "1 0\n0\n", "line 2: the row has 1 numbers, that of line 1 has 2"),
            ("k.txt", "\n1 0\n0 1 2\n", "line 3: the row has 3 numbers, that of line 2 has 2"),
            ("k.txt", "1 0\n0 1\n\n1 1\n", "line 5: the matrix that ends here has 1 rows, the first one has 2"),
            ("k.txt", "1 0x10\n", "'0x10' is not a number"),
            ("k.txt", "1 +-1\n", "'+-1' is not a number"),
            ("k.txt", "1 - 1\n", "'-' is not a number"),
            ("k.txt", "1 1e999\n", "'1e999' is beyond the range of float64"),
            ("k.txt", "1 1e-999\n", "'1e-999' is beyond the range of float64"),
            ("k.txt", "1 \x1b[2J\x07\n", "'\\x1b[2J\\x07' is not a number"),
            ("k.txt", b"1 \x00\xff\n", "'\\x00\\xff' is not a number"),
            ("k.txt", "9" * 5000 + "x", "9999...' is not a number"),
            ("k.csv", "1,0\n0 1\n", "line 2: the row has 1 numbers, that of line 1 has 2"),
            ("k.csv", "1,0,\n", "line 1: a number is missing"),
            ("k.csv", "1,,0\n", "line 1: a number is missing"),
            ("k.csv", "x,y\n1,0\n", "line 1: 'x' is not a number"),
            ("k.csv", '"1","0"\n', "line 1: '\"1\"' is not a number"),
            ("k.csv", "1;0\n", "line 1: '1;0' is not a number"),
            ("k.tsv", "1\t\t0\n", "line 1: a number is missing"),
            ("k.tsv", "1 0\n", "line 1: '1 0' is not a number"),
        ]:
            with self.subTest(content=content[:40]):
                self.write(**{name: content})
                self.expect_failure(self.attend(k=name), 1, f"qkv attend: cannot read '{name}': ", part)

    def test_elements_that_a_mask_cannot_have_are_refused_with_their_line(self):
        self.write(**{"half.txt": "1 0 1\n0 0.5 1\n", "two.txt": "1 2 1\n", "huge.txt": "1e300\n", "nan.txt": "nan\n"})
        for option, name, part in [("--lengths", "half.txt", "line 2: '0.5' is not a whole number"),
                                   ("--lengths", "huge.txt", "line 1: '1e300' is not a whole number"),
                                   ("--lengths", "nan.txt", "line 1: 'nan' is not a whole number"),
                                   ("--keep", "half.txt", "line 2: '0.5' is neither 0 nor 1"),
                                   ("--drop", "two.txt", "line 1: '2' is neither 0 nor 1"),
                                   ("--keep-keys", "nan.txt", "line 1: 'nan' is neither 0 nor 1"),
                                   ("--causal", "offsets=half.txt", "line 2: '0.5' is not a whole number")]:
            with self.subTest(option=option, name=name):
                self.expect_failure(self.attend(option, name), 1, part)

    def test_files_that_cannot_be_read(self):
        os.mkdir(self.folder / "folder.txt")
        os.mkfifo(self.folder / "pipe.csv")
        os.symlink("loop.txt", self.folder / "loop.txt")
        for name, part in [("none.txt", "No such file"), ("folder.txt", "a directory"),
                           ("pipe.csv", "not a regular file"), ("loop.txt", "symbolic links"),
                           ("q.txt/k.txt", "No")]:
            self.expect_failure(self.attend(k=name), 1, f"cannot read '{name}'", part)

    def test_a_name_with_control_characters_is_one_line(self):
        self.expect_failure(self.attend(k="a\x1b[2J\nb.txt"), 1, "cannot read 'a [2J b.txt'")

    def test_an_npy_file_under_another_name_is_no_text(self):
        self.write(**{"k.csv": b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'}"})
        self.expect_failure(self.attend(k="k.csv"), 1, "line 1", "is not a number")


class Stations(TextTest):
    def test_parameters_of_scores_may_be_text(self):
        self.write(**{"M.txt": "1 0\n0 1\n", "wq.csv": "1,0\n0,1\n", "w.txt": "1 2\n", "sigma.txt": "1 2\n"})
        dots = self.printed("--score", "dot")
        self.assertEqual(self.printed("--score", "bilinear", "--matrix", "M.txt"), dots)
        scores = [math.tanh(k[0]) + 2 * math.tanh(2 + k[1]) for k in rows_of(self.K)]
        self.expect_rows(self.printed("--score", "additive", "--wq", "wq.csv", "--wk", "wq.csv", "--w", "w.txt",
                                      "--scores", "-", "-o", "out.npy"), [scores])
        scores = [-(k[0] ** 2 + ((2 - k[1]) / 2) ** 2) / 2 for k in rows_of(self.K)]
        self.expect_rows(self.printed("--score", "gaussian", "--bandwidth", "sigma.txt", "--scores", "-", "-o",
                                      "out.npy"), [scores])

    def test_whole_numbers_are_printed_as_such(self):
        self.assertEqual(self.printed("--top", "4", "--top-indices", "-", "-o", "out.npy"), "1  2  0  -1\n")


if __name__ == "__main__":
    unittest.main()
