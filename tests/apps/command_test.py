#!/usr/bin/env python3
"""tests/apps/command_test.py: the usage of `qkv`: help, version, exit codes.

  command_test.py PROGRAM"""
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import PROGRAM, CommandTest


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
            ([*out, "--window", "1,2,3"], "--window: '1,2,3' should be two whole numbers"),
            ([*out, "--window", "1,x"], "--window: 'x' is not a whole number"),
            ([*out, "--block-mask", "mask.npy"], "--block-mask requires --block-size"),
            ([*out, "--block-size", "2,2"], "--block-size requires --block-mask"),
            ([*out, "--scores-stage", "biased"], "--scores-stage requires --scores"),
            ([*out, "--score", "sine"], "--score: 'sine' is none of dot|scaled_dot|cosine|bilinear|"),
            ([*out, "--score", "bilinear"], "--score: bilinear requires --matrix"),
            ([*out, "--matrix", "m.npy"], "--matrix: requires --score bilinear"),
            ([*out, "--score", "additive", "--wq", "wq.npy", "--w", "w.npy"], "requires --wq, --wk and --w"),
            ([*out, "--score", "dot", "--wk", "wk.npy"], "require --score additive"),
            ([*out, "--score", "cosine", "--bandwidth", "2"], "--bandwidth: requires --score gaussian, laplace"),
            ([*out, "--score", "constant", "--bandwidth", "2"], "--bandwidth: requires --score gaussian, laplace"),
            ([*out, "--weigh", "evenly"], "--weigh: 'evenly' is none of softmax, normalize, raw, hard, uniform, top_k=N"),
            ([*out, "--weigh", "top_k"], "--weigh: 'top_k' is none of"),
            ([*out, "--weigh", "top_k=many"], "--weigh: 'many' is not a whole number"),
            ([*out, "--minimum", "1"], "--minimum: requires --weigh hard"),
            ([*out, "--minimum", "high", "--weigh", "hard"], "--minimum"),
            ([*out, "--temperature", "warm"], "--temperature"),
            ([*out, "--dropout", "0.5"], "--dropout requires --seed"),
            ([*out, "--seed", "1"], "--seed requires --dropout"),
            ([*out, "--dropout", "0.5", "--seed", "-1"], "--seed: '-1' is not a whole number from 0"),
            ([*out, "--sequence-ids", "ids.npy"], "--sequence-ids requires --dropout"),
            ([*out, "--rows", "1,2"], "--rows requires --row-weights"),
            ([*out, "--row-weights", "rows.npy"], "--row-weights requires --rows"),
            ([*out, "--rows", "1,,2", "--row-weights", "rows.npy"], "--rows: '' is not a whole number"),
            ([*out, "--top", "3"], "--top: requires --top-weights or --top-indices"),
            ([*out, "--top", "0", "--top-weights", "top_weights.npy"], "--top"),
            ([*out, "--top-indices", "top_indices.npy"], "--top-indices requires --top"),
            ([*out, "--on-empty", "maybe"], "--on-empty: 'maybe' is none of zero|uniform|nan|error"),
            ([*out, "--out-dtype", "bfloat16"], "--out-dtype: 'bfloat16' is none of float16|float32|float64"),
            ([*out, "--scale", "big"], "--scale"),
            ([*out, "--threads", "0"], "--threads"),
            ([*out, "--threads", "two"], "--threads"),
            ([*out, "--weights", "./out.npy"], "same file"),
            ([*out, "--mass", "out.npy"], "same file"),
            ([*files, "-o", "out.csv"], "--out: 'out.csv' is no .npy file; - prints the result as text"),
            (["demo", "teachers"], "teachers"),
            (["demo", "students", "more"], "more"),
            (["bench", "everything"], "everything"),
            (["bench", "--isa", "abacus"], "--isa: 'abacus' is none of baseline|avx2|avx512"),
            (["bench", "--threads", "-1"], "--threads"),
        ]:
            with self.subTest(arguments):
                self.expect_failure(self.run_qkv(*arguments), 2, part, "--help shows the usage")

    def test_help_is_printed_with_examples(self):
        result = self.run_qkv("--help")
        self.expect_success(result)
        for command in ["attend", "demo", "inspect", "bench"]:
            self.assertIn(command, result.stdout)
            help_text = self.run_qkv(command, "--help")
            self.expect_success(help_text)
            self.assertIn(f"Examples:\n  qkv {command}", help_text.stdout)

    def test_no_line_of_help_is_wider_than_120_columns(self):
        for arguments in [[], ["attend"], ["demo"], ["inspect"], ["bench"]]:
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


if __name__ == "__main__":
    unittest.main()
