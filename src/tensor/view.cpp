// tensor/view.cpp: windows on memory that somebody else owns.
#include <algorithm>
#include <limits>
#include <vector>

#include <qkv/error.h>
#include <qkv/tensor.h>

#include "base/message.h"

namespace qkv {
namespace {

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

void require_axis(const Shape& shape, int axis, const char* operation) {
  if (axis < 0 || axis >= shape.rank()) {
    throw ShapeError(message(operation, ": there is no axis ", axis, " in shape ", shape.text()));
  }
}

// Every element's distance from the first, in bytes, must fit in 64 bits, so that offsets can be computed unchecked.
void require_reach(Dtype dtype, const Shape& shape, const Strides& strides) {
  std::int64_t reach = 1;
  bool fits = true;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t stride = strides[at(axis)];
    std::int64_t span = 0;
    fits = fits && stride != std::numeric_limits<std::int64_t>::min() &&
           !__builtin_mul_overflow(std::max<std::int64_t>(shape[axis] - 1, 0), stride < 0 ? -stride : stride, &span) &&
           !__builtin_add_overflow(reach, span, &reach);
  }
  fits = fits && !__builtin_mul_overflow(reach, static_cast<std::int64_t>(size_of(dtype)), &reach);
  if (!fits) {
    throw ShapeError(message("View: a ", name_of(dtype), " array of shape ", shape.text(),
                             " with these strides reaches further than 64 bits can say"));
  }
}

}  // namespace

View::View(const void* data, Dtype dtype, const Shape& shape) : View(data, dtype, shape, dense_strides(shape)) {}

View::View(const void* data, Dtype dtype, const Shape& shape, const Strides& strides)
    : data_(data), dtype_(dtype), present_(true), shape_(shape), strides_(strides) {
  require_reach(dtype, shape, strides);
  if (data == nullptr && shape.elements() != 0) {
    throw ShapeError(message("View: no memory (a null pointer) for the elements of shape ", shape.text()));
  }
}

void View::require_count(std::size_t count) const {
  if (count != static_cast<std::size_t>(elements())) {
    throw ShapeError(
        message("View: ", count, " elements do not fill shape ", shape_.text(), ", which has ", elements()));
  }
}

bool View::is_dense() const {
  if (elements() == 0) return true;
  std::int64_t stride = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (extent(axis) == 1) continue;  // with one index only, its stride does not matter
    if (strides_[at(axis)] != stride) return false;
    stride *= extent(axis);
  }
  return true;
}

View View::swapped(int axis_a, int axis_b) const {
  require_axis(shape_, axis_a, "View::swapped");
  require_axis(shape_, axis_b, "View::swapped");
  std::vector<std::int64_t> extents(shape_.begin(), shape_.end());
  std::swap(extents[at(axis_a)], extents[at(axis_b)]);
  View result = *this;
  result.shape_ = Shape(extents);
  std::swap(result.strides_[at(axis_a)], result.strides_[at(axis_b)]);
  return result;
}

View View::slice(int axis, std::int64_t first, std::int64_t count) const {
  require_axis(shape_, axis, "View::slice");
  if (first < 0 || count < 0 || first > extent(axis) || count > extent(axis) - first) {
    throw ShapeError(message("View::slice: ", count, " elements from ", first, " on are outside axis ", axis,
                             " of shape ", shape_.text()));
  }
  std::vector<std::int64_t> extents(shape_.begin(), shape_.end());
  extents[at(axis)] = count;
  View result = *this;
  result.shape_ = Shape(extents);
  // Without elements there may be no memory to point into.
  if (elements() != 0 && count != 0) {
    result.data_ = as<char>() + first * strides_[at(axis)] * static_cast<std::int64_t>(size_of(dtype_));
  }
  return result;
}

View View::split(int axis, std::int64_t outer) const {
  require_axis(shape_, axis, "View::split");
  if (outer < 1 || extent(axis) % outer != 0) {
    throw ShapeError(message("View::split: axis ", axis, " of shape ", shape_.text(), " cannot be split into ", outer,
                             " equal parts"));
  }
  std::vector<std::int64_t> extents(shape_.begin(), shape_.end());
  const std::int64_t inner = extent(axis) / outer;
  extents[at(axis)] = inner;
  extents.insert(extents.begin() + axis, outer);
  View result = *this;
  result.shape_ = Shape(extents);  // throws where the rank becomes too high
  std::copy_backward(strides_.begin() + axis, strides_.end() - 1, result.strides_.end());
  result.strides_[at(axis)] = inner * strides_[at(axis)];
  return result;
}

}  // namespace qkv
