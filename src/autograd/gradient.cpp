// autograd/gradient.cpp: a gradient that is being summed.
#include "autograd/gradient.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>

#include "base/blocks.h"
#include "kernels/arithmetic.h"
#include "tensor/elements.h"

namespace qkv::tape {
namespace {

constexpr std::int64_t block = 1 << 15;  // elements; a sum of so few is not worth a thread

template <class T>
void add_whole(Tensor& sum, const Tensor& added) {
  T* to = sum.values<T>().data();
  const T* from = added.values<T>().data();
  for_blocks(sum.elements(), block,
             [&](std::int64_t first, std::int64_t count) { kernels::add_to(to + first, from + first, count); });
}

std::int64_t row_at(const View& rows, std::int64_t i) { return integer_at(rows, i * rows.stride(0)); }

void zero_rows(Tensor& sum, const std::vector<std::int64_t>& rows) {
  if (sum.elements() == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(sum.elements() / sum.shape()[0]) * size_of(sum.dtype());
  auto* memory = static_cast<char*>(sum.view().data());
  for (const std::int64_t row : rows) std::memset(memory + static_cast<std::size_t>(row) * bytes, 0, bytes);
}

}  // namespace

View Gradient::rows() const {
  return state_ == State::rows ? View(rows_, Shape{static_cast<std::int64_t>(rows_.size())}) : View();
}

void Gradient::add(Tensor gradient) {
  if (!present()) {
    sum_ = std::move(gradient);
  } else if (sum_.dtype() == Dtype::float64) {
    add_whole<double>(sum_, gradient);
  } else {
    add_whole<float>(sum_, gradient);
  }
  state_ = State::dense;
}

void Gradient::require_zeros(const Shape& shape, Dtype dtype) {
  if (!sum_) {
    sum_ = Tensor(shape, dtype);
  } else if (!all_zero_ && sum_.elements() > 0) {
    std::memset(sum_.view().data(), 0, static_cast<std::size_t>(sum_.elements()) * size_of(dtype));
  }
}

void Gradient::add_rows(const View& rows, const View& values, const Shape& shape, Dtype dtype) {
  if (!present()) {
    require_zeros(shape, dtype);
    state_ = State::rows;
    rows_.clear();
  }
  // The places of each row, one row after the other. A stable sort keeps the order of the summands.
  std::vector<std::int64_t> places(static_cast<std::size_t>(rows.extent(0)));
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [&](std::int64_t a, std::int64_t b) { return row_at(rows, a) < row_at(rows, b); });
  std::vector<std::int64_t> firsts, touched;  // of each row: the first of its places; itself
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::int64_t row = row_at(rows, places[i]);
    if (touched.empty() || touched.back() != row) {
      touched.push_back(row);
      firsts.push_back(static_cast<std::int64_t>(i));
    }
  }
  firsts.push_back(static_cast<std::int64_t>(places.size()));
  const Tensor copy = values.is_dense() ? Tensor() : Tensor::copy_of(values);
  const View dense = copy ? copy.view() : values;
  const std::int64_t width = touched.empty() ? 0 : dense.elements() / dense.extent(0);
  const auto add_all = [&]<class T>(T) {
    T* sum = sum_.values<T>().data();
    const std::int64_t rows_a_block = std::max<std::int64_t>(1, block / std::max<std::int64_t>(width, 1));
    for_blocks(static_cast<std::int64_t>(touched.size()), rows_a_block, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t r = first; r < first + count; ++r) {
        const auto at = static_cast<std::size_t>(r);
        for (auto i = static_cast<std::size_t>(firsts[at]); i < static_cast<std::size_t>(firsts[at + 1]); ++i) {
          kernels::add_to(sum + touched[at] * width, dense.as<T>() + places[i] * width, width);
        }
      }
    });
  };
  dtype == Dtype::float64 ? add_all(0.0) : add_all(0.0f);
  if (state_ == State::rows) {
    std::vector<std::int64_t> both;
    std::set_union(rows_.begin(), rows_.end(), touched.begin(), touched.end(), std::back_inserter(both));
    rows_ = std::move(both);
  }
}

MutableView Gradient::open(const Shape& shape, Dtype dtype) {
  if (!sum_) sum_ = Tensor::uninitialized(shape, dtype);
  state_ = State::dense;
  return sum_;
}

Tensor Gradient::take() {
  state_ = State::absent;
  all_zero_ = false;
  if (borrowed_) return Tensor::copy_of(std::exchange(borrowed_, View()));
  return std::exchange(sum_, Tensor());
}

void Gradient::clear() {
  if (!present()) return;
  all_zero_ = state_ == State::rows;
  if (all_zero_) zero_rows(sum_, rows_);
  state_ = State::absent;
}

}  // namespace qkv::tape
