// tensor/shape.cpp: extents and the strides of a dense array.
#include <algorithm>
#include <string>

#include <qkv/error.h>
#include <qkv/tensor.h>

#include "base/message.h"
#include "tensor/extents.h"

namespace qkv {

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) {
  if (extents.size() > static_cast<std::size_t>(max_rank)) {
    throw ShapeError(message("Shape: rank ", extents.size(), " is more than ", max_rank));
  }
  for (const std::int64_t extent : extents) {
    if (extent < 0) throw ShapeError(message("Shape: extent ", extent, " of axis ", rank_, " is negative"));
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }
}

std::int64_t Shape::elements() const {
  if (std::find(begin(), end(), 0) != end()) return 0;
  std::int64_t product = 1;
  for (const std::int64_t extent : *this) {
    if (__builtin_mul_overflow(product, extent, &product)) {
      throw ShapeError(message("Shape: the number of elements of ", text(), " does not fit in 64 bits"));
    }
  }
  return product;
}

std::string Shape::text() const { return text_of_extents({begin(), end()}); }

std::string text_of_extents(std::span<const std::int64_t> extents) {
  constexpr std::size_t most = 64;
  std::string text;
  for (const std::int64_t extent : extents.first(std::min(extents.size(), most))) {
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  }
  return "[" + text + (extents.size() > most ? ", …]" : "]");
}

bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

Strides dense_strides(const Shape& shape) {
  Strides strides = {};
  std::int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[static_cast<std::size_t>(axis)] = stride;
    // An extent of 0 counts as 1, so that the last axis of an empty array is dense like any other.
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(shape[axis], 1), &stride)) {
      throw ShapeError(message("dense_strides: the number of elements of ", shape.text(), " does not fit in 64 bits"));
    }
  }
  return strides;
}

}  // namespace qkv
