"""tests/apps/npy.py: .npy files with nothing but Python: arrays are flat lists with a shape."""
import math
import re
import struct
from dataclasses import dataclass

CODES = {"<f2": "e", "<f4": "f", "<f8": "d", "<i4": "i", "<i8": "q", "|b1": "?"}


@dataclass
class Array:
    shape: tuple
    values: list
    descr: str = "<f4"

    def at(self, *index):
        """The element at an index, broadcast right-aligned: missing axes and axes of extent 1 repeat."""
        index = index[len(index) - len(self.shape):]
        place = 0
        for i, extent in zip(index, self.shape):
            place = place * extent + (i if extent > 1 else 0)
        return self.values[place]


def header(descr, shape, fortran_order=False):
    return f"{{'descr': '{descr}', 'fortran_order': {fortran_order}, 'shape': {shape}, }}"


def file_bytes(text, data, version=(1, 0)):
    """A file with this header text, padded as NumPy pads it."""
    size = 10 if version[0] == 1 else 12
    text += " " * (-(size + len(text) + 1) % 64) + "\n"
    length = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text.encode() + data


def to_bytes(array):
    data = struct.pack(f"<{len(array.values)}{CODES[array.descr]}", *array.values)
    return file_bytes(header(array.descr, array.shape), data)


def from_bytes(content):
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:8]
    (length,) = struct.unpack("<H", content[8:10])
    text = content[10:10 + length].decode()
    assert (10 + length) % 64 == 0 and text.endswith("\n"), text
    descr = re.search(r"'descr': '([^']*)'", text).group(1)
    shape = tuple(int(n) for n in re.search(r"'shape': \(([^)]*)\)", text).group(1).split(",") if n.strip())
    data = content[10 + length:]
    return Array(shape, list(struct.unpack(f"<{math.prod(shape)}{CODES[descr]}", data)), descr)
