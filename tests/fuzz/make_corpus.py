#!/usr/bin/env python3
"""Makes the seeds of npy_fuzz: make_corpus.py <directory>. Small files, one per branch of the reader."""
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


SEEDS = {
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


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_corpus.py <directory>")
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (directory / name).write_bytes(content)


if __name__ == "__main__":
    main()
