// io/npy_header.h: the first bytes of a .npy file: what array follows.
//
//   \x93NUMPY  major  minor  length of the text (2 bytes, from version 2.0 on 4)  text  elements
//
// The text is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, padded with spaces and
// ended by a newline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <qkv/tensor.h>

namespace qkv {

struct NpyHeader {
  Dtype dtype = Dtype::float32;
  bool fortran_order = false;
  Shape shape;
};

// Longest text that is read. Arrays of numbers need less than 300 bytes; longer ones are of structured types.
inline constexpr std::size_t npy_text_limit = 65535;
// The fixed part is never longer than this.
inline constexpr std::size_t npy_start_limit = 12;

struct NpyStart {
  std::size_t text_begin = 0;   // where the text begins in the file
  std::size_t text_length = 0;  // how long it is
};

// The three steps of reading, so that a file need not be in memory at once. They throw FileError with the reason only;
// who knows the path adds it.
NpyStart parse_npy_start(std::span<const std::byte> first_bytes);  // the first npy_start_limit bytes, or all there are
NpyHeader parse_npy_text(std::string_view text);
std::size_t npy_data_bytes(const NpyHeader& header, std::uint64_t bytes_after_header);  // checks that both agree

// Everything before the elements, for a dense row-major array. Its length is a multiple of 64.
std::string npy_header_of(Dtype dtype, const Shape& shape);

}  // namespace qkv
