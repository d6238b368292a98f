// qkv/npy.h: arrays in NumPy's .npy files.
#pragma once

#include <filesystem>

#include <qkv/export.h>
#include <qkv/tensor.h>

namespace qkv {

// Reads a .npy file (format 1.0 to 3.0, little endian, C or Fortran order; bool, int32, int64, float16, float32,
// float64) into a tensor of rank at most 8. Distrusts the file: the header is parsed strictly, sizes are checked
// against the length of the file before anything is allocated, and no object arrays are read. Throws FileError with the
// path and the reason.
QKV_API Tensor read_npy(const std::filesystem::path& path);

// Writes a .npy file whole or not at all: to a temporary name beside it, synced, renamed, the directory synced.
// bfloat16 has no npy type and is refused with DtypeError. Throws FileError.
QKV_API void write_npy(const std::filesystem::path& path, View array);

}  // namespace qkv
