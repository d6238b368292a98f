// ops/cross_entropy.h: the loss of a row of logits, and its gradient, for both forms of the op.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/ops.h>

namespace qkv {

// The rows of a call that count, checked.
struct Targets {
  std::vector<std::int64_t> rows;     // rising
  std::vector<std::int64_t> classes;  // of each of them
  double smoothing;
  double factor;  // of a row's loss: 1, or 1 / the number of rows that count

  // targets and options.keep have the shape `all`, and there are `width` classes. Throws ShapeError, DtypeError,
  // OptionError.
  Targets(const char* op, const View& targets, const Shape& all, std::int64_t width,
          const CrossEntropyOptions& options);
  std::int64_t count() const { return static_cast<std::int64_t>(rows.size()); }
};

// The loss of a row, the n-th that counts; and its log-sum-exp.
template <class T>
double row_loss(const Targets& targets, std::int64_t n, const T* logits, std::int64_t width, T* lse);

// The gradient of `factor` times that loss by the logits; gradient may be logits.
template <class T>
void row_gradient(const Targets& targets, std::int64_t n, const T* logits, std::int64_t width, T lse, double factor,
                  T* gradient);

// The loss as a tensor of rank 0.
Tensor total_loss(const Targets& targets, const std::vector<double>& losses, Dtype dtype);

}  // namespace qkv
