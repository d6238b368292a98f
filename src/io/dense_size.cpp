// io/dense_size.cpp: how much room a dense array takes in a file.
#include "io/dense_size.h"

#include <algorithm>
#include <numeric>

#include "io/refuse.h"
#include "tensor/extents.h"

namespace qkv {

DenseSize dense_size(std::span<const std::int64_t> extents, int bits) {
  DenseSize size = {1, 0};
  bool fits = true, empty = false;
  for (const std::int64_t extent : extents) {
    empty = empty || extent == 0;
    // An extent of 0 counts as 1: what surrounds it must be a possible size too, since strides are made of it.
    fits = fits && !__builtin_mul_overflow(size.elements, std::max<std::int64_t>(extent, 1), &size.elements);
  }
  // So many elements fill so many bytes: 1 and 4 for 32 bits, 4 and 3 for 6 bits.
  const int common = std::gcd(bits, 8);
  const std::int64_t group = 8 / common, group_bytes = bits / common;
  fits = fits && !__builtin_mul_overflow(size.elements / group, group_bytes, &size.bytes);
  if (!fits) refuse("the size of its shape ", text_of_extents(extents), " does not fit in 64 bits");
  if (empty) return {0, 0};
  if (size.elements % group != 0) {
    refuse("its shape ", text_of_extents(extents), " of elements of ", bits, " bits takes no whole number of bytes");
  }
  return size;
}

}  // namespace qkv
