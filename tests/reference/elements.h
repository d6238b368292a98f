// reference/elements.h: the numbers of a view of any dtype and any strides.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/tensor.h>

namespace qkv::reference {

// The element at this distance (in elements) from the first, whatever the dtype; false is 0 and true is 1.
double element(const View& view, std::int64_t distance);

// The element at [b, h, i, j] of a view that is broadcast right-aligned: axes that are missing or of extent 1 repeat.
double broadcast_element(const View& view, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j);

// Rank 3 is [B, T, D] with one head, rank 2 is [T, D] with one sequence and one head: the same as [B, H, T, D].
View as_rank_4(const View& view);

// All elements in row-major order.
template <class T>
std::vector<T> elements(const View& view);

}  // namespace qkv::reference
