// ops/broadcast.cpp: element by element, over arrays whose shapes are broadcast.
#include "ops/broadcast.h"

#include <algorithm>
#include <vector>

#include "base/blocks.h"
#include "ops/check.h"

namespace qkv {
namespace {

constexpr std::int64_t block = 1 << 15;  // elements of one task

struct Axis {
  std::int64_t extent, a, b;
};

// Axes of both, where neighbours that lie in the memory of both like one axis are one.
std::vector<Axis> common_axes(const View& a, const View& b) {
  std::vector<Axis> axes;
  for (int i = 0; i < a.rank(); ++i) {
    const Axis next = {a.extent(i), a.stride(i), b.stride(i)};
    if (next.extent == 1) continue;
    if (!axes.empty() && axes.back().a == next.extent * next.a && axes.back().b == next.extent * next.b) {
      axes.back() = {axes.back().extent * next.extent, next.a, next.b};
    } else {
      axes.push_back(next);
    }
  }
  if (axes.empty()) axes.push_back({1, 1, 1});
  return axes;
}

template <class T>
void combine(Arithmetic op, const View& a, const View& b, Tensor& result) {
  const std::vector<Axis> axes = common_axes(a, b);
  const Axis last = axes.back();
  for_blocks(result.elements(), block, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = first; i < first + count;) {
      const std::int64_t line = std::min(last.extent - i % last.extent, first + count - i);
      std::int64_t index = i, a_offset = 0, b_offset = 0;
      for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
        const std::int64_t at = index % axis->extent;
        a_offset += at * axis->a;
        b_offset += at * axis->b;
        index /= axis->extent;
      }
      kernels::combine<T>(
          {op, a.as<T>() + a_offset, last.a, b.as<T>() + b_offset, last.b, line, result.values<T>().data() + i});
      i += line;
    }
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

View broadcast_to(const View& view, const Shape& shape) {
  Strides strides = {};
  const int more = shape.rank() - view.rank();
  for (int axis = more; axis < shape.rank(); ++axis) {
    const bool repeated = view.extent(axis - more) != shape[axis];
    strides[static_cast<std::size_t>(axis)] = repeated ? 0 : view.stride(axis - more);
  }
  return View(view.data(), view.dtype(), shape, strides);
}

Tensor combined(Arithmetic op, const View& a, const View& b, const Shape& shape) {
  Tensor result(shape, a.dtype());
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
