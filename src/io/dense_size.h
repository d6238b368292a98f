// io/dense_size.h: how much room a dense array takes in a file.
#pragma once

#include <cstdint>
#include <span>

namespace qkv {

struct DenseSize {
  std::int64_t elements, bytes;
};

// Of elements of so many bits, which may be less than 8. Throws FileError with the reason only: a size that does not
// fit in 64 bits, or that is no whole number of bytes.
DenseSize dense_size(std::span<const std::int64_t> extents, int bits);

}  // namespace qkv
