// ops/broadcast.cpp: element by element, over arrays whose shapes are broadcast.
#include "ops/broadcast.h"

#include <algorithm>
#include <vector>

#include "base/blocks.h"
#include "ops/check.h"
#include "ops/lines.h"
#include "tensor/broadcast.h"

namespace qkv {
namespace {

constexpr std::int64_t block = 1 << 15;  // elements of one task

template <class T>
void combine(Arithmetic op, const View& a, const View& b, Tensor& result) {
  const CommonLines lines(a, b);
  T* to = result.values<T>().data();
  lines.for_each([&](std::int64_t i, std::int64_t at_a, std::int64_t at_b, std::int64_t count) {
    kernels::combine<T>({op, a.as<T>() + at_a, lines.a_stride(), b.as<T>() + at_b, lines.b_stride(), count, to + i});
  });
}

}  // namespace

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> extents;
  for (int axis = 0; axis < rank; ++axis) {
    const int at_a = axis - (rank - a.rank()), at_b = axis - (rank - b.rank());
    const std::int64_t of_a = at_a < 0 ? 1 : a[at_a], of_b = at_b < 0 ? 1 : b[at_b];
    if (of_a != of_b && of_a != 1 && of_b != 1) refuse_shapes(op, "shapes do not broadcast", {{"a", a}, {"b", b}});
    extents.push_back(of_a == 1 ? of_b : of_a);
  }
  return Shape(extents);
}

Tensor combined(Arithmetic op, const View& a, const View& b, const Shape& shape) {
  Tensor result = Tensor::uninitialized(shape, a.dtype());
  if (result.elements() == 0) return result;
  if (a.dtype() == Dtype::float64) {
    combine<double>(op, broadcast_to(a, shape), broadcast_to(b, shape), result);
  } else {
    combine<float>(op, broadcast_to(a, shape), broadcast_to(b, shape), result);
  }
  return result;
}

void scale_in_place(Tensor& x, double factor) {
  for_blocks(x.elements(), block, [&](std::int64_t first, std::int64_t count) {
    if (x.dtype() == Dtype::float64) {
      kernels::scale(x.values<double>().data() + first, count, factor);
    } else {
      kernels::scale(x.values<float>().data() + first, count, static_cast<float>(factor));
    }
  });
}

}  // namespace qkv
