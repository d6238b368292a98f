// ops/layer_norm.cpp: rows with mean 0 and variance 1, scaled and shifted.
#include <qkv/ops.h>

#include <vector>

#include <qkv/error.h>

#include "base/blocks.h"
#include "base/message.h"
#include "kernels/norms.h"
#include "ops/check.h"

namespace qkv {
namespace {

// Rows of one task, and of one sum of the gradients of gain and shift: at most 16 sums, whatever the threads.
std::int64_t rows_a_block(std::int64_t rows) { return std::max<std::int64_t>(16, divide_up(rows, 16)); }

template <class T>
void forward(const View& x, const View& gain, const View& shift, double epsilon, Tensor& y, Tensor& statistics) {
  const View rows = as_matrix(x);
  const std::int64_t count = rows.extent(0), width = rows.extent(1);
  const auto& kernels = kernels::norm_kernels<T>(current_isa());
  T* means = statistics.values<T>().data();
  for_blocks(count, rows_a_block(count), [&](std::int64_t first, std::int64_t block) {
    for (std::int64_t r = first; r < first + block; ++r) {
      kernels.layer_norm({x.as<T>() + r * width, width, gain.as<T>(), shift.as<T>(), means + r, means + count + r,
                          static_cast<T>(epsilon), y.values<T>().data() + r * width});
    }
  });
}

template <class T>
void backward(Backward& back, const View& x, const View& gain, const View& statistics) {
  const View rows = as_matrix(x), dy = back.upstream();
  const std::int64_t count = rows.extent(0), width = rows.extent(1), block_rows = rows_a_block(count);
  const std::int64_t blocks = divide_up(count, block_rows);
  const auto& kernels = kernels::norm_kernels<T>(current_isa());
  const T* means = statistics.as<T>();
  Tensor dx = back.needs(0) ? Tensor::uninitialized(x.shape(), x.dtype()) : Tensor();
  Tensor sums(Shape{2, blocks, width}, Dtype::float64);
  double* d_gain = back.needs(1) ? sums.values<double>().data() : nullptr;
  double* d_shift = back.needs(2) ? sums.values<double>().data() + blocks * width : nullptr;
  for_blocks(count, block_rows, [&](std::int64_t first, std::int64_t block) {
    const std::int64_t at = first / block_rows * width;
    for (std::int64_t r = first; r < first + block; ++r) {
      kernels.layer_norm_backward({x.as<T>() + r * width, dy.as<T>() + r * width, width, gain.as<T>(), means[r],
                                   means[count + r], dx ? dx.values<T>().data() + r * width : nullptr,
                                   d_gain ? d_gain + at : nullptr, d_shift ? d_shift + at : nullptr});
    }
  });
  if (dx) back.add(0, std::move(dx));
  for (const int input : {1, 2}) {
    if (!back.needs(input)) continue;
    Tensor gradient(Shape{width}, x.dtype());
    for (std::int64_t j = 0; j < width; ++j) {
      double sum = 0;
      for (std::int64_t b = 0; b < blocks; ++b) sum += (input == 1 ? d_gain : d_shift)[b * width + j];
      gradient.values<T>()[static_cast<std::size_t>(j)] = static_cast<T>(sum);
    }
    back.add(input, std::move(gradient));
  }
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& gain, const Variable& shift, double epsilon) {
  const bool is_double = common_dtype("layer_norm", {&x, &gain, &shift}) == Dtype::float64;
  if (x.rank() < 1) refuse_shapes("layer_norm", "there must be an axis", {{"x", x.shape()}});
  for (const Variable* parameter : {&gain, &shift}) {
    if (*parameter && (parameter->rank() != 1 || parameter->extent(0) != x.shape().back())) {
      refuse_shapes("layer_norm", "gain and shift must be [D], as x [..., D]",
                    {{"x", x.shape()}, {parameter == &gain ? "gain" : "shift", parameter->shape()}});
    }
  }
  if (!(epsilon >= 0)) throw OptionError(message("layer_norm: epsilon must not be below 0, and is ", epsilon));
  const Variable rows = dense(x), scale = gain ? dense(gain) : Variable(), offset = shift ? dense(shift) : Variable();
  Tensor y = Tensor::uninitialized(x.shape(), x.dtype());
  // The mean and 1 / sqrt(variance + epsilon) of every row.
  Tensor statistics(Shape{2, leading(x.shape()).elements()}, x.dtype());
  if (is_double) {
    forward<double>(rows.value(), scale.value(), offset.value(), epsilon, y, statistics);
  } else {
    forward<float>(rows.value(), scale.value(), offset.value(), epsilon, y, statistics);
  }
  // n = (x - mean) / sqrt(variance + epsilon), y = n gain + shift. Backward, with g = dy gain:
  // dx = (g - mean(g) - n mean(g n)) / sqrt(variance + epsilon), d gain = sum dy n, d shift = sum dy over the rows.
  // Keeps x, gain and two numbers a row.
  return record("layer_norm", Variable(std::move(y)), {x, gain, shift},
                [is_double, x = rows, gain = scale, statistics = std::move(statistics)](Backward& back) {
                  is_double ? backward<double>(back, x.value(), gain.value(), statistics)
                            : backward<float>(back, x.value(), gain.value(), statistics);
                });
}

}  // namespace qkv
