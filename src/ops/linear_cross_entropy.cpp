// ops/linear_cross_entropy.cpp: the cross-entropy of a linear layer's outputs, which never exist all at once.
#include <qkv/gemm.h>

#include <algorithm>

#include "base/aligned.h"
#include "base/blocks.h"
#include "kernels/arithmetic.h"
#include "ops/broadcast.h"
#include "ops/check.h"
#include "ops/cross_entropy.h"
#include "ops/reduce.h"
#include "tensor/elements.h"

namespace qkv {
namespace {

// Rows of logits that exist at once. Matrix products of fewer rows are slower, and more would leave the cache.
constexpr std::int64_t block = 256;

// The loss and, where they are wanted, its gradients by x, W and b for an upstream gradient of 1.
struct Pieces {
  Tensor loss, dx, dW, db;
};

struct Wanted {
  bool dx, dW, db;
  bool any() const { return dx || dW || db; }
};

// x and dx are [all rows, in]; only rows that count are read and written. They are taken from x, block by block, so
// that what is in the others cannot reach W's gradient as 0 times NaN.
template <class T>
Pieces computed(const View& x, const View& W, const View& b, const Targets& targets, const Wanted& wanted) {
  const std::int64_t in = x.extent(1), width = W.extent(0);
  Pieces pieces;
  if (wanted.dx) pieces.dx = Tensor(x.shape(), x.dtype());
  if (wanted.dW) pieces.dW = Tensor(W.shape(), W.dtype());
  if (wanted.db) pieces.db = Tensor(Shape{width}, Dtype::float64);
  const PackedMatrix across(W.swapped(0, 1)), back = wanted.dx ? PackedMatrix(W) : PackedMatrix();
  std::vector<double> losses(targets.rows.size());
  const Reused logits_memory(static_cast<std::size_t>(block * width) * sizeof(T));
  const Reused rows_memory(static_cast<std::size_t>(block * in) * sizeof(T));
  T *logits = static_cast<T*>(logits_memory.get()), *rows = static_cast<T*>(rows_memory.get());
  for (std::int64_t first = 0; first < targets.count(); first += block) {
    const std::int64_t count = std::min(block, targets.count() - first);
    const std::int64_t* places = targets.rows.data() + first;
    for (std::int64_t r = 0; r < count; ++r) std::copy_n(x.as<T>() + places[r] * in, in, rows + r * in);
    const MutableView some(rows, Shape{count, in}), matrix(logits, Shape{count, width});
    gemm(some, across, matrix, {.bias = b});
    for_blocks(count, 8, [&](std::int64_t from, std::int64_t several) {
      for (std::int64_t r = from; r < from + several; ++r) {
        T *row = logits + r * width, lse;
        losses[static_cast<std::size_t>(first + r)] = row_loss(targets, first + r, row, width, &lse);
        if (wanted.any()) row_gradient(targets, first + r, row, width, lse, targets.factor, row);
      }
    });
    if (wanted.dW) gemm(matrix.swapped(0, 1), some, pieces.dW, {.accumulate = first > 0});
    if (wanted.db) kernels::add_lines<T>({pieces.db.values<double>().data(), logits, width, 1, count, width});
    if (!wanted.dx) continue;
    gemm(matrix, back, some);
    T* dx = pieces.dx.values<T>().data();
    for (std::int64_t r = 0; r < count; ++r) std::copy_n(rows + r * in, in, dx + places[r] * in);
  }
  if (wanted.db) pieces.db = Tensor::copy_of(pieces.db, x.dtype());
  pieces.loss = total_loss(targets, losses, x.dtype());
  return pieces;
}

}  // namespace

Variable linear_cross_entropy(const Variable& x, const Variable& W, const Variable& b, View targets,
                              const CrossEntropyOptions& options) {
  constexpr const char* name = "linear_cross_entropy";
  const bool is_double = common_dtype(name, {&x, &W, &b}) == Dtype::float64;
  common_dtype(name, {&W});
  if (x.rank() < 1 || W.rank() != 2 || x.shape().back() != W.extent(1)) {
    refuse_shapes(name, "x [..., in] and W [V, in] must share `in`", {{"x", x.shape()}, {"W", W.shape()}});
  }
  if (b && (b.rank() != 1 || b.extent(0) != W.extent(0))) {
    refuse_shapes(name, "b must be [V], as W [V, in]", {{"W", W.shape()}, {"b", b.shape()}});
  }
  const Targets checked(name, targets, leading(x.shape()), W.extent(0), options);
  const bool recorded = is_recorded({x, W, b});
  const Wanted wanted{recorded && x.needs_grad(), recorded && W.needs_grad(), recorded && b.needs_grad()};
  const Variable rows = dense(x), offset = b ? dense(b) : Variable();
  const View matrix = as_matrix(rows.value());
  Pieces pieces = is_double ? computed<double>(matrix, W.value(), offset.value(), checked, wanted)
                            : computed<float>(matrix, W.value(), offset.value(), checked, wanted);
  if (pieces.dx) pieces.dx = std::move(pieces.dx).reshaped(x.shape());

  // The gradients are computed on the way, while a block's logits exist: to compute these again would cost a third
  // more. Backward: times dy, which is one number. Keeps the gradients.
  Variable loss(std::move(pieces.loss));
  return record(name, loss, {x, W, b}, [pieces = std::move(pieces)](Backward& back) mutable {
    const double dy = floating_at(back.upstream(), 0);
    Tensor* gradients[] = {&pieces.dx, &pieces.dW, &pieces.db};
    for (int input = 0; input < 3; ++input) {
      if (!back.needs(input)) continue;
      Tensor gradient = back.is_last() ? std::move(*gradients[input]) : gradients[input]->clone();
      if (dy != 1) scale_in_place(gradient, dy);
      back.add(input, std::move(gradient));
    }
  });
}

}  // namespace qkv
