// attention/load.h: rows of tensors, of any dtype and stride, as rows of what is computed in, and back.
#pragma once

#include <cstdint>

#include <qkv/tensor.h>

namespace qkv {

// `count` elements from `offset` on, `step` apart, to target. All of these count in elements.
template <class T>
void load_row(const View& source, std::int64_t offset, std::int64_t step, std::int64_t count, T* target);

// The way back, times `factor`.
template <class T>
void store_row(const T* source, std::int64_t count, T factor, const MutableView& target, std::int64_t offset,
               std::int64_t step);

}  // namespace qkv
