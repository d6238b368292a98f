// ops/sum.cpp: sums and means over axes.
#include <qkv/error.h>
#include <qkv/ops.h>

#include "base/message.h"
#include "ops/broadcast.h"
#include "ops/check.h"
#include "ops/reduce.h"
#include "tensor/broadcast.h"

namespace qkv {
namespace {

struct Sums {
  AxisFlags axes = {};
  Shape kept;   // with extents of 1 where there was a sum
  Shape shape;  // of the result
  std::int64_t summands = 1;
};

Sums check(const char* op, const Variable& x, const SumOptions& options) {
  common_dtype(op, {&x});
  Sums sums;
  if (options.axes.empty()) sums.axes.fill(true);
  for (const int axis : options.axes) {
    bool& flag = sums.axes[static_cast<std::size_t>(resolve_axis(op, axis, x.shape()))];
    if (flag) throw ShapeError(message(op, ": axis ", axis, " is named twice, for shape ", x.shape().text()));
    flag = true;
  }
  std::vector<std::int64_t> kept, left;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool reduced = sums.axes[static_cast<std::size_t>(axis)];
    if (reduced) sums.summands *= x.extent(axis);
    kept.push_back(reduced ? 1 : x.extent(axis));
    if (!reduced) left.push_back(x.extent(axis));
  }
  sums.kept = Shape(kept);
  sums.shape = options.keep_axes ? sums.kept : Shape(left);
  return sums;
}

// y = factor sum x. Backward: dx = factor dy, repeated along the axes of the sum. Keeps nothing.
Variable reduced(const char* op, const Variable& x, const Sums& sums, double factor) {
  Variable y(reduce_sum(x.value(), sums.axes, sums.shape, factor));
  return record(op, y, {x}, [shape = x.shape(), kept = sums.kept, factor](Backward& back) {
    const View dy = back.upstream();
    Tensor dx = Tensor::copy_of(broadcast_to(View(dy.data(), dy.dtype(), kept), shape));
    if (factor != 1) scale_in_place(dx, factor);
    back.add(0, std::move(dx));
  });
}

}  // namespace

Variable sum(const Variable& x, const SumOptions& options) { return reduced("sum", x, check("sum", x, options), 1); }

Variable mean(const Variable& x, const SumOptions& options) {
  const Sums sums = check("mean", x, options);
  return reduced("mean", x, sums, 1 / static_cast<double>(sums.summands));
}

}  // namespace qkv
