// ops/softmax.cpp: softmax along the last axis, whole or masked.
#include <qkv/masked_softmax.h>
#include <qkv/ops.h>

#include <vector>

#include "base/blocks.h"
#include "kernels/norms.h"
#include "ops/check.h"

namespace qkv {
namespace {

std::int64_t rows_a_block(std::int64_t width) { return std::max<std::int64_t>(1, (1 << 13) / (width + 1)); }

template <class T>
Tensor forward(const View& x) {
  Tensor y = Tensor::uninitialized(x.shape(), x.dtype());
  const View rows = as_matrix(x);
  const std::int64_t width = rows.extent(1);
  const auto& kernels = kernels::norm_kernels<T>(current_isa());
  for_blocks(width == 0 ? 0 : rows.extent(0), rows_a_block(width), [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t r = first; r < first + count; ++r) {
      kernels.softmax(x.as<T>() + r * width, width, y.values<T>().data() + r * width);
    }
  });
  return y;
}

// dx = y (dy - sum y dy) over the first `length` entries of each row, 0 behind; in place. lengths: one per row, or
// none.
template <class T>
void backward(const View& y, const std::vector<std::int64_t>& lengths, Tensor& dy) {
  const View rows = as_matrix(y);
  const std::int64_t width = rows.extent(1);
  const auto& kernels = kernels::norm_kernels<T>(current_isa());
  T* gradient = dy.values<T>().data();
  for_blocks(rows.extent(0), rows_a_block(width), [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t r = first; r < first + count; ++r) {
      const std::int64_t length = lengths.empty() ? width : lengths[static_cast<std::size_t>(r)];
      T* row = gradient + r * width;
      kernels.softmax_backward(y.as<T>() + r * width, row, length, row);
      std::fill(row + length, row + width, T(0));
    }
  });
}

Variable record_softmax(const char* name, const Variable& x, const Variable& y, std::vector<std::int64_t> lengths) {
  return record(name, y, {x}, [y, lengths = std::move(lengths)](Backward& back) {
    Tensor dx = back.take_upstream();
    y.dtype() == Dtype::float64 ? backward<double>(y.value(), lengths, dx) : backward<float>(y.value(), lengths, dx);
    back.add(0, std::move(dx));
  });
}

// One length a row, from [B] or [B, Tq].
std::vector<std::int64_t> lengths_of_rows(const Shape& scores, const View& valid_lens) {
  if (!valid_lens) return {};
  const Tensor dense = Tensor::copy_of(valid_lens, Dtype::int64);
  const auto lens = dense.values<std::int64_t>();
  const std::int64_t rows = leading(scores).elements();
  const std::int64_t repeats = lens.empty() ? 0 : rows / static_cast<std::int64_t>(lens.size());
  std::vector<std::int64_t> lengths;
  for (std::int64_t r = 0; r < rows; ++r) lengths.push_back(lens[static_cast<std::size_t>(r / repeats)]);
  return lengths;
}

}  // namespace

// y = e^x / sum e^x. Backward: dx = y (dy - sum y dy). Keeps y.
Variable softmax(const Variable& x) {
  const bool is_double = common_dtype("softmax", {&x}) == Dtype::float64;
  if (x.rank() < 1) refuse_shapes("softmax", "there must be an axis", {{"x", x.shape()}});
  const Variable rows = dense(x);
  const Variable y(is_double ? forward<double>(rows.value()) : forward<float>(rows.value()));
  return record_softmax("softmax", x, y, {});
}

// The same over the first entries of each row; the others, and those of rows that have none, get no gradient. Keeps y
// and the lengths.
Variable masked_softmax(const Variable& scores, View valid_lens, OnEmpty on_empty) {
  common_dtype("masked_softmax", {&scores});
  const Variable y(masked_softmax(scores.value(), valid_lens, on_empty));
  return record_softmax("masked_softmax", scores, y, lengths_of_rows(scores.shape(), valid_lens));
}

}  // namespace qkv
