// ops/linear.cpp: x W^T + b.
#include <qkv/gemm.h>
#include <qkv/ops.h>

#include "ops/broadcast.h"
#include "ops/check.h"
#include "ops/reduce.h"

namespace qkv {

Variable linear(const Variable& x, const Variable& W, const Variable& b) {
  common_dtype("linear", {&x, &W, &b});
  common_dtype("linear", {&W});
  if (x.rank() < 1 || W.rank() != 2 || x.shape().back() != W.extent(1)) {
    refuse_shapes("linear", "x [..., in] and W [out, in] must share `in`", {{"x", x.shape()}, {"W", W.shape()}});
  }
  if (b && (b.rank() != 1 || b.extent(0) != W.extent(0))) {
    refuse_shapes("linear", "b must be [out], as W [out, in]", {{"W", W.shape()}, {"b", b.shape()}});
  }
  const Variable rows = dense(x);
  Tensor y(with_last(leading(x.shape()), W.extent(0)), x.dtype());
  gemm(as_matrix(rows.value()), W.value().swapped(0, 1), as_matrix(y.view()));
  if (b) y = combined(Arithmetic::add, y, b.value(), y.shape());

  // Backward: dx = dy W, dW = dy^T x, db = the sum of dy's rows. Keeps x and W.
  return record("linear", Variable(std::move(y)), {x, W, b}, [x = rows, W](Backward& back) {
    const View dy = as_matrix(back.upstream());
    if (back.needs(0)) {
      const auto dx = back.target(0);
      gemm(dy, W.value(), as_matrix(dx.gradient), {.accumulate = dx.accumulate});
    }
    if (back.needs(1)) {
      const auto dW = back.target(1);
      gemm(dy.swapped(0, 1), as_matrix(x.value()), dW.gradient, {.accumulate = dW.accumulate});
    }
    if (back.needs(2)) back.add(2, reduce_sum(dy, {true, false}, Shape{dy.extent(1)}));
  });
}

}  // namespace qkv
