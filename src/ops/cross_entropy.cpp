// ops/cross_entropy.cpp: how badly logits tell the classes.
#include "ops/cross_entropy.h"

#include <algorithm>

#include <qkv/error.h>

#include "base/blocks.h"
#include "base/message.h"
#include "kernels/arithmetic.h"
#include "kernels/norms.h"
#include "ops/check.h"
#include "tensor/elements.h"

namespace qkv {

Targets::Targets(const char* op, const View& targets, const Shape& all, std::int64_t width,
                 const CrossEntropyOptions& options)
    : smoothing(options.smoothing) {
  require_integers(targets, "targets", op);
  if (targets.shape() != all) {
    refuse_shapes(op, "there must be a target for every row", {{"the rows", all}, {"targets", targets.shape()}});
  }
  if (options.keep && (options.keep.dtype() != Dtype::boolean || options.keep.shape() != all)) {
    throw ShapeError(message(op, ": keep must be boolean ", all.text(), ", as the targets, not ",
                             name_of(options.keep.dtype()), " ", options.keep.shape().text()));
  }
  if (!(smoothing >= 0 && smoothing <= 1)) {
    throw OptionError(message(op, ": smoothing must be between 0 and 1, and is ", smoothing));
  }
  const Tensor dense = Tensor::copy_of(targets, Dtype::int64), keep = Tensor::copy_of(options.keep);
  for (std::int64_t row = 0; row < dense.elements(); ++row) {
    const std::int64_t target = dense.view().as<std::int64_t>()[row];
    if ((keep && !keep.view().as<bool>()[row]) || (options.ignore && target == *options.ignore)) continue;
    if (target < 0 || target >= width) {
      throw ShapeError(
          message(op, ": there is no class ", target, " among ", width, "; it is the target of row ", row));
    }
    rows.push_back(row);
    classes.push_back(target);
  }
  factor = options.reduction == Reduction::sum ? 1 : 1 / static_cast<double>(count());
}

// With lse = log sum e^x: (1 - s) (lse - x_target) + s (lse - mean x).
template <class T>
double row_loss(const Targets& targets, std::int64_t n, const T* logits, std::int64_t width, T* lse) {
  *lse = kernels::norm_kernels<T>(current_isa()).softmax(logits, width, nullptr);
  const auto whole = static_cast<double>(*lse), s = targets.smoothing;
  const std::int64_t target = targets.classes[static_cast<std::size_t>(n)];
  const double loss = (1 - s) * (whole - static_cast<double>(logits[target]));
  return s > 0 ? loss + s * (whole - kernels::sum(logits, 1, width) / static_cast<double>(width)) : loss;
}

// softmax - s / V - (1 - s) at the target.
template <class T>
void row_gradient(const Targets& targets, std::int64_t n, const T* logits, std::int64_t width, T lse, double factor,
                  T* gradient) {
  const auto f = static_cast<T>(factor), even = static_cast<T>(targets.smoothing / static_cast<double>(width));
  kernels::norm_kernels<T>(current_isa()).weights_less(logits, width, lse, even, f, gradient);
  gradient[targets.classes[static_cast<std::size_t>(n)]] -= static_cast<T>(1 - targets.smoothing) * f;
}

Tensor total_loss(const Targets& targets, const std::vector<double>& losses, Dtype dtype) {
  const double loss = targets.factor * kernels::sum(losses.data(), 1, static_cast<std::int64_t>(losses.size()));
  return Tensor::copy_of(View(&loss, Shape{}), dtype);
}

template double row_loss(const Targets&, std::int64_t, const float*, std::int64_t, float*);
template double row_loss(const Targets&, std::int64_t, const double*, std::int64_t, double*);
template void row_gradient(const Targets&, std::int64_t, const float*, std::int64_t, float, double, float*);
template void row_gradient(const Targets&, std::int64_t, const double*, std::int64_t, double, double, double*);

namespace {

// work(n, row) for every row that counts, on several threads.
template <class Work>
void for_rows(const Targets& targets, Work work) {
  for_blocks(targets.count(), 8, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t n = first; n < first + count; ++n) work(n, targets.rows[static_cast<std::size_t>(n)]);
  });
}

template <class T>
Variable computed(const Variable& logits, const View& target_view, const CrossEntropyOptions& options) {
  const Variable rows = dense(logits);
  const std::int64_t width = logits.shape().back();
  const Targets targets("cross_entropy", target_view, leading(logits.shape()), width, options);
  std::vector<double> losses(targets.rows.size());
  std::vector<T> lse(targets.rows.size());
  for_rows(targets, [&, x = rows.value().as<T>()](std::int64_t n, std::int64_t row) {
    losses[static_cast<std::size_t>(n)] = row_loss(targets, n, x + row * width, width, lse.data() + n);
  });
  // Backward: d logits = dy factor (softmax - s / V - (1 - s) at the target), 0 for rows that do not count. Keeps the
  // logits and a number a row.
  return record("cross_entropy", Variable(total_loss(targets, losses, logits.dtype())), {logits},
                [targets, logits = rows, width, lse = std::move(lse)](Backward& back) {
                  const double factor = targets.factor * static_cast<double>(back.upstream().as<T>()[0]);
                  Tensor d_logits(logits.shape(), logits.dtype());
                  const T* x = logits.value().as<T>();
                  T* dx = d_logits.values<T>().data();
                  for_rows(targets, [&](std::int64_t n, std::int64_t row) {
                    row_gradient(targets, n, x + row * width, width, lse[static_cast<std::size_t>(n)], factor,
                                 dx + row * width);
                  });
                  back.add(0, std::move(d_logits));
                });
}

}  // namespace

Variable cross_entropy(const Variable& logits, View targets, const CrossEntropyOptions& options) {
  const bool is_double = common_dtype("cross_entropy", {&logits}) == Dtype::float64;
  if (logits.rank() < 1) refuse_shapes("cross_entropy", "logits must be [..., V]", {{"logits", logits.shape()}});
  return is_double ? computed<double>(logits, targets, options) : computed<float>(logits, targets, options);
}

}  // namespace qkv
