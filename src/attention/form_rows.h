// attention/form_rows.h: what scores do to single rows of queries or keys before they are compared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include <qkv/gemm.h>
#include <qkv/tensor.h>

#include "attention/score_parameters.h"
#include "base/numbers.h"
#include "kernels/rows.h"

namespace qkv {

// 1 / sigma of head h where bandwidths differ by coordinate, else null.
template <class T>
const T* coordinate_factors(const ScoreParameters& parameters, std::int64_t h) {
  return parameters.by_coordinate ? of_head(parameters.inverse_bandwidths, h).as<T>() : nullptr;
}

// row / |row|; a row of zeros stays. Lengths that leave the range of T are found in double.
template <class T>
void normalize_row(const T* row, std::int64_t count, T* to) {
  const auto& kernels = kernels::row_kernels<T>();
  const int n = static_cast<int>(count);
  const T square = kernels.product(row, row, n);
  constexpr T tiny = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
  if (square > tiny && square <= std::numeric_limits<T>::max()) {
    return kernels.scale(row, n, T(1) / std::sqrt(square), to);
  }
  const T largest = kernels.largest(row, count);
  if (largest == T(0) && square == T(0)) {
    std::fill_n(to, n, T(0));
    return;
  }
  long double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<long double>(row[i]) * static_cast<long double>(row[i]);
  const long double length = std::sqrt(sum);
  for (int i = 0; i < n; ++i) to[i] = static_cast<T>(static_cast<long double>(row[i]) / length);
}

// to = rows * matrix: `count` rows of x from offset `at` on, its last two axes being rows and columns.
template <class T>
void project_rows(const View& x, std::int64_t at, std::int64_t count, const PackedMatrix& matrix, T* to) {
  const auto* first = static_cast<const std::byte*>(x.data()) + at * static_cast<std::int64_t>(size_of(x.dtype()));
  const View rows(first, x.dtype(), Shape{count, x.extent(3)}, Strides{x.stride(2), x.stride(3)});
  const MutableView result(to, Shape{count, matrix.columns()});
  if (x.dtype() == dtype_of<T>) return gemm(rows, matrix, result, {.threads = 1});
  const Tensor converted = Tensor::copy_of(rows, dtype_of<T>);
  gemm(converted, matrix, result, {.threads = 1});
}

// The largest magnitude, infinite where one is not a finite number.
template <class T>
double largest_magnitude(const T* values, std::int64_t count) {
  const auto& kernels = kernels::row_kernels<T>();
  return kernels.finite(values, count) ? static_cast<double>(kernels.largest(values, count)) : infinity<double>;
}

// to = e^(2 x)
template <class T>
void exponentiate(const T* x, std::int64_t count, T* to) {
  kernels::row_kernels<T>().exponentials(x, count, static_cast<T>(2 * std::numbers::log2e), to);
}

// The way back. An exponential of 0 is of a row that nobody sees.
template <class T>
void recover(const T* x, std::int64_t count, T* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = x[i] == T(0) ? T(0) : std::log(x[i]) / 2;
}

}  // namespace qkv
