#!/usr/bin/env python3
"""tests/interop/safetensors_test.py: safetensors files go both ways between qkv and Python's package of that name.

  safetensors_test.py PROGRAM      the program made of safetensors_copy.cpp

Needs a Python with the packages safetensors and numpy: this one, or the one that QKV_PYTHON names. Otherwise the tests
are skipped aloud."""
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest


def has_packages(python):
    try:
        return subprocess.run([python, "-c", "import numpy, safetensors.numpy"], capture_output=True).returncode == 0
    except OSError:
        return False


try:
    import numpy
    import safetensors
    import safetensors.numpy
except ImportError:
    safetensors = None
    other = os.environ.get("QKV_PYTHON")
    if other and other != sys.executable and has_packages(other):
        os.execv(other, [other, "-B", *sys.argv])

PROGRAM = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else sys.exit(__doc__)


@unittest.skipIf(safetensors is None, "Python's packages safetensors and numpy are not installed; QKV_PYTHON names a Python that has them")
class RoundTrip(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.given = pathlib.Path(folder.name, "given.safetensors")
        self.made = pathlib.Path(folder.name, "made.safetensors")

    def copy(self, *options):
        return subprocess.run([PROGRAM, self.given, self.made, *options], capture_output=True, text=True)

    def expect_copied(self, *options):
        result = self.copy(*options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def arrays(self):
        numbers = numpy.random.default_rng(0)
        return {
            "decoder.weight": numbers.normal(size=(3, 5)).astype("float32"),
            "decoder.bias": numbers.normal(size=5).astype("float32"),
            "encoder.0.weight": numbers.normal(size=(2, 3, 4)).astype("float64"),
            "half": numpy.array([1.5, -0.0, numpy.inf, numpy.nan, 6e-8], "float16"),
            "steps": numpy.array(2**40, "int64"),
            "ids": numpy.arange(7, dtype="int32"),
            "mask": numpy.array([[True, False, True]]),
            "empty": numpy.zeros((0, 4), "float32"),
            'odd "name" \\ / \n ü 漢 𝄞': numpy.ones(1, "float32"),
        }

    def test_what_python_wrote_is_written_again_byte_for_byte(self):
        for metadata in [None, {"format": "pt"}, {"": "ü\n\"\x1f\x7f"}]:
            safetensors.numpy.save_file(self.arrays(), self.given, metadata=metadata)
            self.expect_copied()
            self.assertEqual(self.made.read_bytes(), self.given.read_bytes())

    def test_what_qkv_wrote_is_what_python_reads(self):
        safetensors.numpy.save_file(self.arrays(), self.given, metadata={"a": "1", "b": "2"})
        self.expect_copied()
        read = safetensors.numpy.load_file(self.made)
        self.assertEqual(set(read), set(self.arrays()))
        for name, array in self.arrays().items():
            self.assertEqual((read[name].dtype, read[name].shape), (array.dtype, array.shape))
            self.assertEqual(read[name].tobytes(), array.tobytes())
        with safetensors.safe_open(self.made, "numpy") as file:
            self.assertEqual(file.metadata(), {"a": "1", "b": "2"})

    def test_floating_tensors_are_widened_as_numpy_widens_them(self):
        safetensors.numpy.save_file(self.arrays(), self.given)
        self.expect_copied("float32")
        for name, array in safetensors.numpy.load_file(self.made).items():
            expected = self.arrays()[name]
            if expected.dtype.kind == "f":
                expected = expected.astype("float32")
            self.assertEqual(array.dtype, expected.dtype)
            numpy.testing.assert_array_equal(array, expected)

    def test_bfloat16_goes_both_ways(self):
        numbers = numpy.array([1.5, -2, 3e38, 1e-40], "float32")
        upper_halves = (numbers.view("uint32") >> 16).astype("uint16")
        self.put_raw("BF16", [2, 2], upper_halves.tobytes())
        self.expect_copied()
        self.assertEqual(self.made.read_bytes(), self.given.read_bytes())
        self.expect_copied("float32")
        read = safetensors.numpy.load_file(self.made)["x"]
        self.assertEqual(read.tobytes(), (upper_halves.astype("uint32") << 16).tobytes())

    def put_raw(self, dtype, shape, data):
        text = f'{{"x":{{"dtype":"{dtype}","shape":{str(shape).replace(" ", "")},"data_offsets":[0,{len(data)}]}}}}'.encode()
        text += b" " * (-len(text) % 8)
        self.given.write_bytes(len(text).to_bytes(8, "little") + text + data)

    def test_elements_that_qkv_does_not_have_are_refused_by_name(self):
        for dtype in ["uint8", "int8", "int16", "uint16", "uint32", "uint64", "complex64"]:
            safetensors.numpy.save_file({"x": numpy.zeros(2, dtype)}, self.given)
            result = self.copy()
            self.assertEqual(result.returncode, 1, dtype)
            name = {"i": "I", "u": "U", "c": "C"}[dtype[0]] + "".join(filter(str.isdigit, dtype))
            self.assertIn(f"tensor 'x': its elements are {name};", result.stderr)

    def test_what_python_refuses_is_refused(self):
        """Files with a byte changed: qkv may be stricter, never laxer."""
        safetensors.numpy.save_file({"a": numpy.ones(2, "float32"), "b": numpy.ones((1, 2), "int32")}, self.given, metadata={"k": "v"})
        whole = self.given.read_bytes()
        header = 8 + int.from_bytes(whole[:8], "little")
        chance = random.Random(0)
        accepted = 0
        for _ in range(300):
            changed = bytearray(whole)
            changed[chance.randrange(header)] = chance.choice(b'0123456789{}[]",: \\eF\x00\xff')
            self.given.write_bytes(changed)
            if self.copy().returncode == 0:
                accepted += 1
                with self.subTest(changed=bytes(changed)):
                    safetensors.numpy.load_file(self.given)
        self.assertGreater(accepted, 10)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
