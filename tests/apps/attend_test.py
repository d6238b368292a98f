#!/usr/bin/env python3
"""tests/apps/attend_test.py: what `qkv attend` computes, against the formulas, and what it refuses.

  attend_test.py PROGRAM"""
import math
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import naive
import npy
from harness import ALL_RESULTS, B, D, DV, H, HK, TK, TQ, AttendTest, CommandTest, bools, floats
from npy import Array


class Attend(AttendTest):
    def test_plain_attention_is_what_the_formula_says(self):
        self.expect_answers([])

    def test_every_score_option_means_what_it_says(self):
        self.expect_answers(["--score", "dot"], score=naive.dot())
        self.expect_answers(["--score", "scaled_dot"])
        self.expect_answers(["--scale", "-0.25"], score=naive.dot(-0.25))
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
            score=naive.dot(0.75), softcap=3, on_empty="uniform")

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


class Stations(AttendTest):
    """Scores, weighings and statistics. In float64: near its edge, a compact kernel magnifies rounding."""

    def setUp(self):
        super().setUp()
        self.q, self.k, self.v = floats((B, H, TQ, D), 1, "<f8"), floats((B, HK, TK, D), 2, "<f8"), \
            floats((B, HK, TK, DV), 3, "<f8")
        self.put(q=self.q, k=self.k, v=self.v)

    def test_cosine_is_what_it_says(self):
        self.expect_answers(["--score", "cosine"], score=naive.cosine)
        self.expect_answers(["--score", "cosine", "--scale", "4", "--softcap", "2"],
                            score=lambda h, q, k: 4 * naive.cosine(h, q, k), softcap=2)

    def test_bilinear_joins_queries_and_keys_of_different_width(self):
        self.q = floats((B, H, TQ, 2), 1, "<f8")
        shared, per_head = floats((2, D), 10, "<f8"), floats((H, 2, D), 11, "<f8")
        self.put(q=self.q, shared=shared, per_head=per_head)
        for name, M in [("shared", shared), ("per_head", per_head)]:
            self.expect_answers(["--score", "bilinear", "--matrix", f"{name}.npy"], score=naive.bilinear(M))

    def test_additive_joins_queries_and_keys_of_different_width(self):
        self.q, E = floats((B, H, TQ, 2), 1, "<f8"), 4
        wq, wk, w = floats((E, 2), 12, "<f8"), floats((E, D), 13, "<f8"), floats((E,), 14, "<f8")
        wq_heads, w_heads = floats((H, E, 2), 15, "<f8"), floats((H, E), 16, "<f8")
        self.put(q=self.q, wq=wq, wk=wk, w=w, wq_heads=wq_heads, w_heads=w_heads)
        self.expect_answers(["--score", "additive", "--wq", "wq.npy", "--wk", "wk.npy", "--w", "w.npy"],
                            score=naive.additive(wq, wk, w))
        self.expect_answers(["--score", "additive", "--wq", "wq_heads.npy", "--wk", "wk.npy", "--w", "w_heads.npy"],
                            score=naive.additive(wq_heads, wk, w_heads))

    def test_every_kernel_under_every_weighing_that_takes_its_value(self):
        for name in naive.KERNELS:
            bandwidth = [] if name == "constant" else ["--bandwidth", "2"]
            self.expect_answers(["--score", name, *bandwidth], score=naive.kernel(name, 2))
            self.expect_answers(["--score", name, *bandwidth, "--weigh", "normalize"], score=naive.kernel(name, 2),
                                weigh=naive.normalize)
            self.expect_answers(["--score", name, *bandwidth, "--weigh", "raw"], ["weights", "scores"],
                                score=naive.kernel(name, 2), weigh=naive.raw)

    def test_a_bandwidth_is_1_a_number_or_an_array(self):
        arrays = {"one": Array((1,), [2.0], "<f8"), "coordinates": Array((D,), [2.0, 4.0, 1.0], "<f8"),
                  "heads": Array((H, 1), [1.0, 2.0, 4.0, 8.0], "<f8"),
                  "all": Array((H, D), [2.0 ** (n % 4) for n in range(H * D)], "<f8")}
        self.put(**arrays)
        self.expect_answers(["--score", "gaussian"], score=naive.kernel("gaussian"))
        self.expect_answers(["--score", "laplace", "--bandwidth", "0.5"], score=naive.kernel("laplace", 0.5))
        for name, array in arrays.items():
            for kernel in ["gaussian", "triangular"]:
                self.expect_answers(["--score", kernel, "--bandwidth", f"{name}.npy"],
                                    score=naive.kernel(kernel, array))

    def test_every_weighing_means_what_it_says(self):
        self.expect_answers(["--weigh", "softmax"])
        self.expect_answers(["--weigh", "normalize"], ["weights", "scores"], weigh=naive.normalize)
        self.expect_answers(["--weigh", "raw", "--score", "dot"], ["weights", "scores"], score=naive.dot(),
                            weigh=naive.raw)
        self.expect_answers(["--weigh", "hard"], ["weights", "scores"], weigh=naive.hard())
        self.expect_answers(["--weigh", "hard", "--minimum", "1.5"], ["weights", "scores"], weigh=naive.hard(1.5))
        self.expect_answers(["--weigh", "uniform"], ["weights"], weigh=naive.uniform)
        for k in [1, 2, TK, TK + 3]:
            self.expect_answers(["--weigh", f"top_k={k}"], weigh=naive.top_k(k))

    def test_weighings_see_what_the_mask_shows(self):
        lens = Array((B,), [4, 0], "<i4")
        self.put(lens=lens)
        for name, weigh in [("normalize", naive.normalize), ("raw", naive.raw), ("hard", naive.hard()),
                            ("uniform", naive.uniform), ("top_k=2", naive.top_k(2))]:
            self.expect_answers(["--weigh", name, "--lengths", "lens.npy", "--on-empty", "uniform"], ["weights"],
                                sees=lambda b, h, i, j: j < lens.values[b], weigh=weigh, on_empty="uniform")

    def test_the_temperature_divides_what_has_been_added(self):
        bias = floats((TQ, TK), 7)
        self.put(bias=bias)
        self.expect_answers(["--temperature", "0.25", "--bias", "bias.npy"], ["lse", "weights"], temperature=0.25,
                            added=lambda b, h, i, j: bias.at(i, j))

    def test_statistics_are_those_of_the_weights(self):
        lens = Array((B,), [5, 2], "<i4")
        self.put(lens=lens)
        for name, weigh in [("softmax", naive.softmax), ("top_k=3", naive.top_k(3))]:
            expected = self.expect_answers(
                ["--weigh", name, "--lengths", "lens.npy", "--rows", "2,0", "--row-weights", "rows.npy", "--top", "3",
                 "--top-weights", "top_weights.npy", "--top-indices", "top_indices.npy"],
                ["lse", "mass", "entropy", "effective"], sees=lambda b, h, i, j: j < lens.values[b], weigh=weigh)
            weights, places = expected.top(3)
            self.expect_close(self.get("rows"), expected.rows([2, 0]))
            self.expect_close(self.get("top_weights"), weights)
            self.expect_close(self.get("top_indices"), places)
            self.assertEqual(self.get("top_indices").descr, "<i8")

    def test_dropout_takes_some_weights_and_raises_the_others(self):
        self.v = Array((B, HK, TK, TK), [float(i == j) for _ in range(B * HK) for i in range(TK) for j in range(TK)],
                       "<f8")
        self.put(v=self.v, ids=Array((B,), [0, 1], "<i8"), other_ids=Array((B,), [5, 6], "<i8"))
        weights = naive.attend(self.q, self.k, self.v).weights.values

        def dropped(*arguments):
            """The weights after dropout: values are one-hot, so they are the answers themselves."""
            self.expect_success(self.attend("--dropout", "0.5", *arguments, "--weights", "weights.npy"))
            self.expect_close(self.get("weights"), Array((B, H, TQ, TK), weights, "<f8"))  # those before dropout
            return self.get("out").values

        seven = dropped("--seed", "7")
        for weight, answer in zip(weights, seven):
            self.assertTrue(answer == 0 or abs(answer - 2 * weight) < 1e-9, (weight, answer))
        self.assertTrue(0.3 < seven.count(0) / len(seven) < 0.7, seven.count(0))
        self.assertEqual(dropped("--seed", "7", "--threads", "2"), seven)
        self.assertEqual(dropped("--seed", "7", "--sequence-ids", "ids.npy"), seven)
        self.assertNotEqual(dropped("--seed", "7", "--sequence-ids", "other_ids.npy"), seven)
        self.assertNotEqual(dropped("--seed", "18446744073709551615"), seven)

    def test_the_plan_knows_every_station(self):
        for arguments in [["--score", "gaussian"], ["--weigh", "top_k=2"], ["--weigh", "hard", "--temperature", "2"]]:
            result = self.run_qkv("attend", "q.npy", "k.npy", "v.npy", *arguments, "--plan")
            self.expect_success(result)
            self.assertIn("kernel", result.stdout)

    def test_what_the_library_refuses_is_exit_code_1(self):
        self.put(M=floats((D + 1, D), 1, "<f8"), sigma=Array((2, 2), [1.0] * 4, "<f8"))
        for arguments, part in [(["--temperature", "0"], "temperature"),
                                (["--temperature", "nan"], "temperature"),
                                (["--score", "gaussian", "--bandwidth", "0"], "bandwidth"),
                                (["--score", "gaussian", "--bandwidth", "sigma.npy"], "[2, 2]"),
                                (["--score", "gaussian", "--scale", "2"], "scale"),
                                (["--score", "laplace", "--softcap", "2"], "softcap"),
                                (["--score", "bilinear", "--matrix", "M.npy"], f"[{D + 1}, {D}]"),
                                (["--score", "bilinear", "--matrix", "none.npy"], "cannot read 'none.npy'"),
                                (["--weigh", "top_k=0"], "top_k"),
                                (["--weigh", "hard", "--entropy", "entropy.npy"], "entropy"),
                                (["--rows", str(TQ), "--row-weights", "rows.npy"], "rows"),
                                (["--dropout", "1", "--seed", "1"], "dropout")]:
            with self.subTest(arguments):
                self.expect_failure(self.attend(*arguments), 1, "qkv attend: ", part)


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


if __name__ == "__main__":
    unittest.main()
