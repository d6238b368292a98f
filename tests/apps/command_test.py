#!/usr/bin/env python3
"""tests/apps/command_test.py: what `qkv` prints, writes and returns.

  command_test.py PROGRAM"""
import math
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import naive
import npy
from npy import Array

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else sys.exit(__doc__)

B, H, HK, TQ, TK, D, DV = 2, 4, 2, 3, 5, 3, 2


def numbers(count, seed):
    """Reproducible numbers between -2 and 2, exact in float16."""
    values = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) % 2**31
        values.append((seed >> 16) % 257 / 64 - 2)
    return values


def floats(shape, seed, descr="<f4"):
    return Array(shape, numbers(math.prod(shape), seed), descr)


def bools(shape, seed):
    return Array(shape, [n > -1 for n in numbers(math.prod(shape), seed)], "|b1")


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.q, self.k, self.v = floats((B, H, TQ, D), 1), floats((B, HK, TK, D), 2), floats((B, HK, TK, DV), 3)
        self.put(q=self.q, k=self.k, v=self.v)

    def put(self, **arrays):
        for name, array in arrays.items():
            (self.folder / f"{name}.npy").write_bytes(array if isinstance(array, bytes) else npy.to_bytes(array))

    def get(self, name):
        return npy.from_bytes((self.folder / f"{name}.npy").read_bytes())

    def run_qkv(self, *arguments, **environment):
        return subprocess.run([PROGRAM, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env={**os.environ, **environment})

    def attend(self, *arguments):
        return self.run_qkv("attend", "q.npy", "k.npy", "v.npy", "-o", "out.npy", *arguments)

    def expect_success(self, result):
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def expect_failure(self, result, code, *parts):
        """One line on stderr that has all these parts, nothing on stdout, no file but the inputs."""
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"\Aqkv[^\n]*: [^\n]+\n\Z")
        for part in parts:
            self.assertIn(part, result.stderr)
        left = [path.name for path in self.folder.iterdir() if path.name in RESULTS or path.name.endswith(".tmp")]
        self.assertEqual(left, [])

    def expect_close(self, got, expected):
        self.assertEqual(got.shape, expected.shape)
        tolerance = 2e-3 if got.descr == "<f2" else 1e-5  # float32 sums of a few numbers up to 4; float16 rounds more
        for a, e in zip(got.values, expected.values):
            same = a == e or (math.isnan(a) and math.isnan(e))
            self.assertTrue(same or abs(a - e) <= tolerance * max(1, abs(e)), f"{a} instead of {e}")


RESULTS = {"out.npy", "lse.npy", "weights.npy", "scores.npy"}
ALL_RESULTS = ["--lse", "lse.npy", "--weights", "weights.npy", "--scores", "scores.npy"]


class Attend(CommandTest):
    def expect_answers(self, arguments, **meaning):
        self.expect_success(self.attend(*arguments, *ALL_RESULTS))
        expected = naive.attend(self.q, self.k, self.v, **meaning)
        for name in ["out", "lse", "weights", "scores"]:
            with self.subTest(arguments=arguments, result=name):
                self.expect_close(self.get(name), getattr(expected, name))

    def test_plain_attention_is_what_the_formula_says(self):
        self.expect_answers([])

    def test_every_score_option_means_what_it_says(self):
        self.expect_answers(["--score", "dot"], scale=1)
        self.expect_answers(["--score", "scaled_dot"])
        self.expect_answers(["--scale", "-0.25"], scale=-0.25)
        self.expect_answers(["--softcap", "0.5"], softcap=0.5)

    def test_every_mask_means_what_it_says(self):
        lens, per_query = Array((B,), [4, 2], "<i4"), Array((B, TQ), [1, 5, 3, 2, 4, 1], "<i8")
        keep, drop, keys = bools((B, 1, TQ, TK), 4), bools((TQ, TK), 5), bools((B, TK), 6)
        bias, slopes, offsets = floats((H, TQ, TK), 7), Array((H,), [0.5, 0.25, 1.0, 2.0]), Array((B,), [1, 3], "<i8")
        cells = Array((2, 3), [True, False, True, True, True, False], "|b1")
        self.put(lens=lens, per_query=per_query, keep=keep, drop=drop, keys=keys, bias=bias, slopes=slopes,
                 offsets=offsets, cells=cells)
        last = TK - TQ
        self.expect_answers(["--lengths", "lens.npy"], sees=lambda b, h, i, j: j < lens.values[b])
        self.expect_answers(["--lengths", "per_query.npy"], sees=lambda b, h, i, j: j < per_query.at(b, i))
        self.expect_answers(["--causal", "top_left"], sees=lambda b, h, i, j: j <= i)
        self.expect_answers(["--causal", "bottom_right"], sees=lambda b, h, i, j: j <= i + last)
        self.expect_answers(["--causal", "bottom_right", "--lengths", "lens.npy"],
                            sees=lambda b, h, i, j: j < lens.values[b] and j <= i + lens.values[b] - TQ)
        self.expect_answers(["--causal", "offset=-1"], sees=lambda b, h, i, j: j <= i - 1)
        self.expect_answers(["--causal", "offsets=offsets.npy"], sees=lambda b, h, i, j: j <= i + offsets.values[b])
        self.expect_answers(["--causal", "--align", "offset=1"], sees=lambda b, h, i, j: j <= i + 1)
        self.expect_answers(["--window", "1,0", "--align", "bottom_right"],
                            sees=lambda b, h, i, j: i + last - 1 <= j <= i + last)
        self.expect_answers(["--window", "-1,1", "--align", "top_left"], sees=lambda b, h, i, j: j <= i + 1)
        self.expect_answers(["--keep", "keep.npy"], sees=lambda b, h, i, j: keep.at(b, h, i, j))
        self.expect_answers(["--drop", "drop.npy"], sees=lambda b, h, i, j: not drop.at(b, h, i, j))
        self.expect_answers(["--keep-keys", "keys.npy"], sees=lambda b, h, i, j: keys.at(b, j))
        self.expect_answers(["--bias", "bias.npy"], added=lambda b, h, i, j: bias.at(b, h, i, j))
        self.expect_answers(["--alibi", "slopes.npy", "--align", "bottom_right"],
                            added=lambda b, h, i, j: -slopes.values[h] * abs(i + last - j))
        self.expect_answers(["--block-mask", "cells.npy", "--block-size", "2,2"],
                            sees=lambda b, h, i, j: cells.at(i // 2, j // 2))

    def test_masks_and_options_combine(self):
        lens, slopes, bias = Array((B,), [5, 3], "<i4"), Array((H,), [0.5, 0.25, 1.0, 2.0]), floats((TQ, TK), 8)
        keep = bools((H, 1, TK), 9)
        self.put(lens=lens, slopes=slopes, bias=bias, keep=keep)
        self.expect_answers(
            ["--lengths", "lens.npy", "--causal", "offset=2", "--window", "2,-1", "--alibi", "slopes.npy", "--bias",
             "bias.npy", "--keep", "keep.npy", "--softcap", "3", "--scale", "0.75", "--on-empty", "uniform",
             "--threads", "2"],
            sees=lambda b, h, i, j: j < lens.values[b] and i <= j <= i + 2 and keep.at(b, h, i, j),
            added=lambda b, h, i, j: bias.at(b, h, i, j) - slopes.values[h] * abs(i + 2 - j),
            scale=0.75, softcap=3, on_empty="uniform")

    def test_a_query_that_sees_nothing_gets_what_on_empty_says(self):
        self.put(lens=Array((B,), [0, 5], "<i4"))
        for choice in ["zero", "uniform", "nan"]:
            self.expect_answers(["--lengths", "lens.npy", "--on-empty", choice],
                                sees=lambda b, h, i, j: b == 1, on_empty=choice)

    def test_such_a_query_can_be_an_error(self):
        self.put(lens=Array((B,), [5, 0], "<i4"))
        self.expect_failure(self.attend("--lengths", "lens.npy", "--on-empty", "error", *ALL_RESULTS), 1,
                            "qkv attend: query 0 of head 0 of sequence 1")

    def test_scores_are_taken_at_the_stage_asked_for(self):
        self.put(drop=Array((TQ, TK), [True] * (TQ * TK - 1) + [False], "|b1"))
        mask = ["--softcap", "1", "--drop", "drop.npy", "--scores", "scores.npy", "--scores-stage"]
        self.expect_success(self.attend(*mask, "scaled"))
        self.expect_close(self.get("scores"), naive.attend(self.q, self.k, self.v).scores)
        self.expect_success(self.attend(*mask, "capped"))
        self.expect_close(self.get("scores"), naive.attend(self.q, self.k, self.v, softcap=1).scores)
        self.expect_success(self.attend(*mask, "biased"))
        self.assertEqual(self.get("scores").values.count(-math.inf), B * H * (TQ * TK - 1))

    def test_dtypes_are_kept_or_chosen(self):
        expected = naive.attend(self.q, self.k, self.v).out
        for descr, arguments, out in [("<f2", [], "<f2"), ("<f8", [], "<f8"),
                                      ("<f2", ["--out-dtype", "float32"], "<f4"),
                                      ("<f4", ["--out-dtype", "float16"], "<f2")]:
            with self.subTest(descr=descr, arguments=arguments):
                for name, array in [("q", self.q), ("k", self.k), ("v", self.v)]:
                    self.put(**{name: Array(array.shape, array.values, descr)})
                self.expect_success(self.attend(*arguments))
                self.assertEqual(self.get("out").descr, out)
                self.expect_close(self.get("out"), expected)

    def test_rank_2_is_one_sequence_and_one_head(self):
        self.q, self.k, self.v = floats((1, 1, TQ, D), 1), floats((1, 1, TK, D), 2), floats((1, 1, TK, DV), 3)
        expected = naive.attend(self.q, self.k, self.v).out
        self.put(**{name: Array(getattr(self, name).shape[2:], getattr(self, name).values) for name in "qkv"})
        self.expect_success(self.attend())
        self.expect_close(self.get("out"), Array((TQ, DV), expected.values))

    def test_one_thread_and_many_write_the_same_bytes(self):
        self.expect_success(self.attend("--threads", "1"))
        one = (self.folder / "out.npy").read_bytes()
        self.expect_success(self.attend("--threads", "8"))
        self.assertEqual((self.folder / "out.npy").read_bytes(), one)

    def test_a_result_may_replace_an_input(self):
        expected = naive.attend(self.q, self.k, self.v).out
        self.expect_success(self.run_qkv("attend", "q.npy", "k.npy", "v.npy", "-o", "q.npy"))
        self.expect_close(self.get("q"), expected)

    def test_the_plan_is_printed_and_nothing_is_written(self):
        result = self.run_qkv("attend", "q.npy", "k.npy", "v.npy", "--causal", "top_left", "--threads", "1", "--plan")
        self.expect_success(result)
        for word in ["kernel", "isa", "panel", "block", "tasks", "threads  1", "memory"]:
            self.assertIn(word, result.stdout)
        self.expect_success(self.attend("--plan"))
        self.assertFalse((self.folder / "out.npy").exists())


class AttendRefuses(CommandTest):
    def test_files_that_cannot_be_read(self):
        self.expect_failure(self.run_qkv("attend", "none.npy", "k.npy", "v.npy", "-o", "out.npy"), 1,
                            "qkv attend: cannot read 'none.npy'", "No such file")
        self.expect_failure(self.run_qkv("attend", ".", "k.npy", "v.npy", "-o", "out.npy"), 1, "'.'", "a directory")
        os.mkfifo(self.folder / "pipe")
        self.expect_failure(self.run_qkv("attend", "pipe", "k.npy", "v.npy", "-o", "out.npy"), 1, "not a regular file")
        self.expect_failure(self.attend("--bias", "none.npy"), 1, "cannot read 'none.npy'")
        self.expect_failure(self.attend("--causal", "offsets=none.npy"), 1, "cannot read 'none.npy'")

    def test_a_truncated_file_wherever_it_ends(self):
        whole = npy.to_bytes(self.k)
        for length in [0, 3, 6, 7, 9, 10, 60, 127, 128, len(whole) - 1]:
            with self.subTest(length=length):
                self.put(k=whole[:length])
                self.expect_failure(self.attend(), 1, "cannot read 'k.npy'")

    def test_hostile_files(self):
        data = b"\0" * 4
        for name, content, part in [
            ("trailing bytes", npy.to_bytes(self.k) + b"x", "1 bytes too many"),
            ("overflow", npy.file_bytes(npy.header("<f4", (2**62, 2**62)), data), "64 bits"),
            ("huge", npy.file_bytes(npy.header("<f4", (2**40,)), data), "truncated"),
            ("negative", npy.file_bytes(npy.header("<f4", (-1,)), data), "negative"),
            ("fraction", npy.file_bytes(npy.header("<f4", (1.5,)), data), "malformed"),
            ("rank 9", npy.file_bytes(npy.header("<f4", (1,) * 9), data), "rank"),
            ("big endian", npy.file_bytes(npy.header(">f4", (1,)), data), "big endian"),
            ("object", npy.file_bytes(npy.header("|O", (1,)), b"\x80\x03N."), "Python objects"),
            ("structured", npy.file_bytes("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", data),
             "structured"),
            ("unsigned", npy.file_bytes(npy.header("<u4", (1,)), data), "'<u4'"),
            ("twice", npy.file_bytes("{'shape': (1,), 'shape': (1,)}", data), "twice"),
            ("unknown key", npy.file_bytes("{'shape': (1,), 'evil\\n': 1}", data), "unknown key"),
            ("code", npy.file_bytes("__import__('os').abort()", data), "malformed"),
            ("terminal escapes", npy.file_bytes(npy.header("\x1b[2J\n", (1,)), data), "\\x1b[2J\\x0a"),
            ("length", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "4294967295"),
            ("version", b"\x93NUMPY\x09\x00" + b"\0" * 100, "version 9.0"),
            ("text", b"1 2 3\n4 5 6\n", "not a .npy file"),
        ]:
            with self.subTest(name):
                self.put(k=content)
                self.expect_failure(self.attend(), 1, "cannot read 'k.npy'", part)

    def test_fortran_order_is_no_reason(self):
        shape = self.q.shape
        turned = [self.q.at(b, h, i, d) for d in range(D) for i in range(TQ) for h in range(H) for b in range(B)]
        self.expect_success(self.attend())
        expected = (self.folder / "out.npy").read_bytes()
        data = npy.to_bytes(Array(shape, turned))[128:]
        self.put(q=npy.file_bytes(npy.header("<f4", shape, True), data))
        self.expect_success(self.attend())
        self.assertEqual((self.folder / "out.npy").read_bytes(), expected)

    def test_arrays_that_do_not_fit_together(self):
        self.put(wide=floats((B, HK, TK, D + 1), 1), heads=floats((B, 3, TK, D), 1), mask=floats((TQ, TK), 1),
                 whole=Array(self.k.shape, [1] * len(self.k.values), "<i4"), double=floats(self.k.shape, 1, "<f8"),
                 lens=Array((B,), [1, TK + 1], "<i4"))
        for arguments, parts in [(["q.npy", "wide.npy", "v.npy"], [f"[{B}, {HK}, {TK}, {D + 1}]"]),
                                 (["q.npy", "heads.npy", "heads.npy"], [f"[{B}, 3, {TK}, {D}]"]),
                                 (["q.npy", "whole.npy", "v.npy"], ["int32"]),
                                 (["q.npy", "double.npy", "v.npy"], ["float64"])]:
            with self.subTest(arguments):
                self.expect_failure(self.run_qkv("attend", *arguments, "-o", "out.npy"), 1, "qkv attend: ", *parts)
        self.expect_failure(self.attend("--lengths", "lens.npy"), 1, f"length {TK + 1} of sequence 1")
        self.expect_failure(self.attend("--keep", "mask.npy"), 1, "keep", "boolean", "float32")
        self.expect_failure(self.attend("--causal"), 1, "causal", "alignment", f"Tq = {TQ}", f"Tk = {TK}")
        self.expect_failure(self.attend("--softcap", "-1"), 1, "softcap", "-1")
        self.expect_failure(self.attend("--scale", "nan"), 1, "scale")

    def test_a_target_that_cannot_be_written(self):
        for target, part in [("none/out.npy", "No such file"), (".", "directory"), ("/dev/null", "not a regular file")]:
            with self.subTest(target):
                self.expect_failure(self.run_qkv("attend", "q.npy", "k.npy", "v.npy", "-o", target), 1,
                                    f"cannot write '{target}'", part)

    def test_when_a_later_result_cannot_be_written_the_earlier_ones_are_named(self):
        result = self.attend("--weights", "none/weights.npy")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"\Aqkv attend: cannot write 'none/weights.npy': [^\n]*"
                                        r"\(already written: out.npy\)\n\Z")

    def test_an_old_result_stays_where_there_is_no_new_one(self):
        (self.folder / "old.npy").write_bytes(b"old")
        self.put(k=b"broken")
        self.expect_failure(self.run_qkv("attend", "q.npy", "k.npy", "v.npy", "-o", "old.npy"), 1)
        self.assertEqual((self.folder / "old.npy").read_bytes(), b"old")

    def test_a_wrong_number_of_threads_in_the_environment(self):
        result = self.run_qkv("attend", "q.npy", "k.npy", "v.npy", "-o", "out.npy", QKV_THREADS="many")
        self.expect_failure(result, 1, "QKV_THREADS", '"many"')


class Usage(CommandTest):
    def test_wrong_usage_is_one_line_and_exit_code_2(self):
        files = ["attend", "q.npy", "k.npy", "v.npy"]
        out = [*files, "-o", "out.npy"]
        for arguments, part in [
            ([], "subcommand is required"),
            (["nonsense"], "no command 'nonsense'"),
            (["--nonsense"], "qkv: "),
            (["attend"], "q is required"),
            (["attend", "q.npy", "k.npy"], "v is required"),
            (files, "-o is required"),
            ([*out, "one_more.npy"], "one_more.npy"),
            ([*out, "--nonsense"], "--nonsense"),
            ([*out, "-o", "again.npy"], "--out"),
            ([*out, "--lengths"], "--lengths"),
            ([*out, "--causal", "sideways"], "--causal: 'sideways'"),
            ([*out, "--causal", "offset=x"], "--causal: 'x' is not a whole number"),
            ([*out, "--causal", "offset=99999999999999999999"], "is not a whole number"),
            (["attend", "--causal", *files[1:], "-o", "out.npy"], "--causal: 'q.npy' is none of"),
            ([*out, "--align", "top_left"], "--align: there is nothing to align"),
            ([*out, "--window", "3"], "--window: '3' should be two whole numbers"),
            ([*out, "--window", "1,2,3"], "--window: '2,3' is not a whole number"),
            ([*out, "--block-mask", "mask.npy"], "--block-mask requires --block-size"),
            ([*out, "--block-size", "2,2"], "--block-size requires --block-mask"),
            ([*out, "--scores-stage", "biased"], "--scores-stage requires --scores"),
            ([*out, "--score", "cosine"], "--score: 'cosine' is none of dot|scaled_dot"),
            ([*out, "--on-empty", "maybe"], "--on-empty: 'maybe' is none of zero|uniform|nan|error"),
            ([*out, "--out-dtype", "bfloat16"], "--out-dtype: 'bfloat16' is none of float16|float32|float64"),
            ([*out, "--scale", "big"], "--scale"),
            ([*out, "--threads", "0"], "--threads"),
            ([*out, "--threads", "two"], "--threads"),
            ([*out, "--weights", "./out.npy"], "same file"),
            (["demo", "more"], "more"),
            (["bench", "everything"], "everything"),
            (["bench", "--isa", "abacus"], "--isa: 'abacus' is none of baseline|avx2|avx512"),
            (["bench", "--threads", "-1"], "--threads"),
        ]:
            with self.subTest(arguments):
                self.expect_failure(self.run_qkv(*arguments), 2, part, "--help shows the usage")

    def test_help_is_printed_with_examples(self):
        result = self.run_qkv("--help")
        self.expect_success(result)
        for command in ["attend", "demo", "bench"]:
            self.assertIn(command, result.stdout)
            help_text = self.run_qkv(command, "--help")
            self.expect_success(help_text)
            self.assertIn(f"Examples:\n  qkv {command}", help_text.stdout)

    def test_no_line_of_help_is_wider_than_120_columns(self):
        for arguments in [[], ["attend"], ["demo"], ["bench"]]:
            for line in self.run_qkv(*arguments, "--help").stdout.splitlines():
                self.assertLessEqual(len(line), 120, line)

    def test_the_version_is_that_of_the_header(self):
        header = pathlib.Path(__file__).parents[2] / "include/qkv/version.h"
        version = re.search(r'version = "([^"]+)"', header.read_text()).group(1)
        result = self.run_qkv("--version")
        self.expect_success(result)
        self.assertEqual(result.stdout, f"qkv {version}\n")

    def test_a_full_disk_behind_the_standard_output_is_an_error(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([PROGRAM, "demo"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((result.returncode, result.stderr), (1, "qkv demo: cannot write to the standard output\n"))


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
