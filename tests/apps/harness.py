"""tests/apps/harness.py: runs `qkv` in a folder of its own and reads what it leaves there.

Whoever imports this is called with the program as its first argument."""
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import naive
import npy
from npy import Array

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else sys.exit(sys.modules["__main__"].__doc__)

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


RESULTS = {f"{name}.npy" for name in ["out", "lse", "weights", "scores", "mass", "entropy", "effective", "rows",
                                      "top_weights", "top_indices"]}
ALL_RESULTS = ["--lse", "lse.npy", "--weights", "weights.npy", "--scores", "scores.npy"]


class AttendTest(CommandTest):
    def expect_answers(self, arguments, results=("lse", "weights", "scores"), **meaning):
        """Every result asked for is what the formula says."""
        wanted = [word for name in results for word in (f"--{name}", f"{name}.npy")]
        self.expect_success(self.attend(*arguments, *wanted))
        expected = naive.attend(self.q, self.k, self.v, **meaning)
        for name in ["out", *results]:
            with self.subTest(arguments=arguments, result=name):
                self.expect_close(self.get(name), getattr(expected, name))
        return expected
