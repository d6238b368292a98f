// ops/matmul.cpp: products of matrices, or of batches of them.
#include <qkv/gemm.h>
#include <qkv/ops.h>

#include "base/blocks.h"
#include "ops/broadcast.h"
#include "ops/check.h"
#include "ops/reduce.h"
#include "tensor/broadcast.h"

namespace qkv {
namespace {

// The last two axes under these leading ones, along which the matrix may be repeated.
View with_batch(const View& matrices, const Shape& batch) {
  const int rank = matrices.rank();
  return broadcast_to(matrices, with_last(with_last(batch, matrices.extent(rank - 2)), matrices.extent(rank - 1)));
}

// One matrix of a batch.
View matrix_at(const View& matrices, std::int64_t index) {
  const int rank = matrices.rank();
  std::int64_t offset = 0;
  for (int axis = rank - 3; axis >= 0; --axis) {
    offset += index % matrices.extent(axis) * matrices.stride(axis);
    index /= matrices.extent(axis);
  }
  return View(matrices.as<char>() + offset * static_cast<std::int64_t>(size_of(matrices.dtype())), matrices.dtype(),
              Shape{matrices.extent(rank - 2), matrices.extent(rank - 1)},
              Strides{matrices.stride(rank - 2), matrices.stride(rank - 1)});
}

// c = a b for every matrix of the batch. Several matrices are shared out among the threads whole.
Tensor multiplied(const View& a, const View& b, const Shape& batch) {
  const View as = with_batch(a, batch), bs = with_batch(b, batch);
  const std::int64_t M = as.extent(as.rank() - 2), N = bs.shape().back();
  Tensor c(with_last(with_last(batch, M), N), a.dtype());
  if (c.elements() == 0 || as.elements() == 0) return c;
  const std::int64_t count = batch.elements();
  char* memory = static_cast<char*>(c.view().data());
  const auto matrix_bytes = M * N * static_cast<std::int64_t>(size_of(c.dtype()));
  for_blocks(count, 1, [&](std::int64_t i, std::int64_t) {
    const MutableView matrix(memory + i * matrix_bytes, c.dtype(), Shape{M, N});
    gemm(matrix_at(as, i), matrix_at(bs, i), matrix, {.threads = count > 1 ? 1 : 0});
  });
  return c;
}

View transposed(const View& matrices) { return matrices.swapped(matrices.rank() - 2, matrices.rank() - 1); }

}  // namespace

Variable matmul(const Variable& a, const Variable& b) {
  common_dtype("matmul", {&a, &b});
  common_dtype("matmul", {&b});
  if (a.rank() < 2 || b.rank() < 2 || a.shape().back() != b.extent(b.rank() - 2)) {
    refuse_shapes("matmul", "a [..., M, K] and b [..., K, N] must share K", {{"a", a.shape()}, {"b", b.shape()}});
  }
  const Shape batch = broadcast_shape("matmul (the axes before the last two)", leading(leading(a.shape())),
                                      leading(leading(b.shape())));
  Tensor c = multiplied(a.value(), b.value(), batch);
  // Backward: da = dc b^T, db = a^T dc, summed over what was repeated. Keeps each factor that the other one's gradient
  // needs.
  return record("matmul", Variable(std::move(c)), {a, b},
                [batch, a_shape = a.shape(), b_shape = b.shape(), a = b.needs_grad() ? a.detach() : Variable(),
                 b = a.needs_grad() ? b.detach() : Variable()](Backward& back) {
                  const View dc = back.upstream();
                  if (back.needs(0)) back.add(0, reduce_to(multiplied(dc, transposed(b.value()), batch), a_shape));
                  if (back.needs(1)) back.add(1, reduce_to(multiplied(transposed(a.value()), dc, batch), b_shape));
                });
}

}  // namespace qkv
