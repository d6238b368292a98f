// attention/load.h: rows of tensors, of any dtype and stride, as rows of what is computed in, and back.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/tensor.h>

namespace qkv {

// `count` elements from `offset` on, `step` apart, to target. All of these count in elements.
template <class T>
void load_row(const View& source, std::int64_t offset, std::int64_t step, std::int64_t count, T* target);

// The way back, times `factor`.
template <class T>
void store_row(const T* source, std::int64_t count, T factor, const MutableView& target, std::int64_t offset,
               std::int64_t step);

// Rows of a tensor, along its last axis, as rows of T: in place where dtype and stride allow, else loaded.
template <class T>
class RowReader {
 public:
  explicit RowReader(const View& source)
      : source_(source),
        width_(source.extent(source.rank() - 1)),
        step_(source.stride(source.rank() - 1)),
        in_place_(source.dtype() == dtype_of<T> && step_ == 1),
        loaded_(in_place_ ? 0 : static_cast<std::size_t>(width_)) {}

  // The row that starts at `offset`, counted in elements; valid until the next one is asked for.
  const T* row(std::int64_t offset) {
    if (in_place_) return source_.as<T>() + offset;
    load_row(source_, offset, step_, width_, loaded_.data());
    return loaded_.data();
  }

 private:
  View source_;
  std::int64_t width_, step_;
  bool in_place_;
  std::vector<T> loaded_;
};

}  // namespace qkv
