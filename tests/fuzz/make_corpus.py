#!/usr/bin/env python3
"""Makes the seeds of the fuzzers: make_corpus.py <directory>, one folder a fuzzer. Small files, one per branch of the
readers."""
import pathlib
import struct
import sys


def npy(text, data, version=(1, 0)):
    """A .npy file with the given header text, padded as NumPy pads it."""
    size = 10 if version[0] == 1 else 12
    text = text + " " * (-(size + len(text) + 1) % 64) + "\n"
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text.encode() + data


def header(descr, shape, fortran=False):
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"


def safetensors(text, data=b"", padding=True):
    """A safetensors file with the given header text, padded to 8 bytes."""
    text = text.encode() if isinstance(text, str) else text
    text += b" " * (-len(text) % 8 if padding else 0)
    return struct.pack("<Q", len(text)) + text + data


def tensor(name, dtype, shape, begin, end):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'


NPY_SEEDS = {
    "float32": npy(header("<f4", (2, 3)), struct.pack("<6f", *range(6))),
    "float64_scalar": npy(header("<f8", ()), struct.pack("<d", 1.5)),
    "float16_fortran": npy(header("<f2", (2, 2, 2), True), bytes(range(16))),
    "int32_version_2": npy(header("<i4", (3,)), struct.pack("<3i", 1, -2, 3), (2, 0)),
    "int64_version_3": npy(header("<i8", (1,)), struct.pack("<q", 7), (3, 0)),
    "bool": npy(header("|b1", (4,)), bytes([0, 1, 1, 0])),
    "bool_that_is_2": npy(header("|b1", (1,)), bytes([2])),
    "empty": npy(header("<f4", (0, 5)), b""),
    "truncated": npy(header("<f4", (2, 3)), b"\0" * 23),
    "too_long": npy(header("<f4", (2, 3)), b"\0" * 25),
    "huge": npy(header("<f4", (2**62, 2**62)), b""),
    "negative": npy(header("<f4", (-1,)), b""),
    "rank_9": npy(header("<f4", (1,) * 9), b"\0" * 4),
    "big_endian": npy(header(">f4", (1,)), b"\0" * 4),
    "object": npy(header("|O", (1,)), b"\x80\x03N."),
    "structured": npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", b"\0" * 4),
    "twice": npy("{'shape': (1,), 'shape': (1,), 'descr': '<f4', 'fortran_order': False}", b"\0" * 4),
    "other_quotes": npy('{"descr":"<f4","fortran_order":False,"shape":(1,)}', b"\0" * 4),
    "length_lies": b"\x93NUMPY\x01\x00\xff\xff{",
    "nothing": b"",
}


SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
         "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "C64": 8, "F64": 8, "I64": 8, "U64": 8}

SAFETENSORS_SEEDS = {
    **{dtype: safetensors("{" + tensor("x", dtype, [2], 0, 2 * size) + "}", b"\1" * (2 * size))
       for dtype, size in SIZES.items()},
    "F4": safetensors("{" + tensor("x", "F4", [2], 0, 1) + "}", b"x"),
    "F6_E2M3": safetensors("{" + tensor("x", "F6_E2M3", [4], 0, 3) + "}", b"xyz"),
    "F6_E3M2": safetensors("{" + tensor("x", "F6_E3M2", [5], 0, 3) + "}", b"xyz"),
    "several": safetensors('{"__metadata__":{"format":"pt","a":"b"},' + tensor("b", "F32", [1, 2], 0, 8) + ","
                           + tensor("a", "F16", [3], 8, 14) + "," + tensor("e", "I64", [0, 3], 14, 14) + ","
                           + tensor("s", "BOOL", [], 14, 15) + "}", b"\0" * 15),
    "any_order": safetensors('{"x":{ "data_offsets" : [ 4 , 8 ] ,\n"shape":[1],\t"dtype":"I32"},'
                             + tensor("y", "I32", [1], 0, 4) + "}\n", b"\0" * 8),
    "unaligned": safetensors("{" + tensor("xy", "F64", [1], 0, 8) + "}", b"\0" * 8, padding=False),
    "escapes": safetensors("{" + tensor('\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\\ud834\\udd1e', "F32", [0], 0, 0) + "}"),
    "lone_surrogate": safetensors("{" + tensor("\\ud834", "F32", [0], 0, 0) + "}"),
    "utf8": safetensors("{" + tensor("ü漢𝄞", "F32", [0], 0, 0) + "}"),
    "not_utf8": safetensors(b'{"\xff\xfe":{}}'),
    "control": safetensors(b'{"\x1f":{}}'),
    "bool_that_is_2": safetensors("{" + tensor("x", "BOOL", [1], 0, 1) + "}", b"\2"),
    "rank_9": safetensors("{" + tensor("x", "F32", [1] * 9, 0, 4) + "}", b"\0" * 4),
    "twice": safetensors("{" + tensor("x", "F32", [0], 0, 0) + "," + tensor("x", "F32", [0], 0, 0) + "}"),
    "metadata_twice": safetensors('{"__metadata__":{"a":"b","a":"b"},"__metadata__":{}}'),
    "metadata_number": safetensors('{"__metadata__":{"a":1}}'),
    "hole": safetensors("{" + tensor("x", "U8", [1], 1, 2) + "}", b"\0" * 2),
    "overlap": safetensors("{" + tensor("x", "U8", [2], 0, 2) + "," + tensor("y", "U8", [2], 1, 3) + "}", b"\0" * 3),
    "backwards": safetensors("{" + tensor("x", "U8", [2], 2, 0) + "}", b"\0" * 2),
    "truncated": safetensors("{" + tensor("x", "F32", [2], 0, 8) + "}", b"\0" * 7),
    "too_long": safetensors("{" + tensor("x", "F32", [2], 0, 8) + "}", b"\0" * 9),
    "huge": safetensors("{" + tensor("x", "F32", [2**62, 2**62], 0, 8) + "}", b"\0" * 8),
    "number_too_large": safetensors("{" + tensor("x", "F32", [2**64], 0, 8) + "}", b"\0" * 8),
    "negative": safetensors("{" + tensor("x", "F32", [-1], 0, 4) + "}", b"\0" * 4),
    "fraction": safetensors("{" + tensor("x", "F32", [1.0], 0, 4) + "}", b"\0" * 4),
    "unknown_key": safetensors('{"x":{"dtype":"F32","shape":[],"data_offsets":[0,4],"more":1}}', b"\0" * 4),
    "lacks_a_key": safetensors('{"x":{"dtype":"F32","data_offsets":[0,4]}}', b"\0" * 4),
    "empty_object": safetensors("{}"),
    "two_objects": safetensors("{}{}"),
    "deep": safetensors('{"x":' + "[" * 500),
    "length_lies": b"\xff" * 8 + b"{}",
    "nothing": b"",
}


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_corpus.py <directory>")
    for fuzzer, seeds in {"npy_fuzz": NPY_SEEDS, "safetensors_fuzz": SAFETENSORS_SEEDS}.items():
        directory = pathlib.Path(sys.argv[1], fuzzer)
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (directory / name).write_bytes(content)


if __name__ == "__main__":
    main()
