// kernels/arithmetic.h: sums and products along lines of numbers.
//
// Compiled once, for the baseline: memory is the limit of what is done once with each number. T is float or double.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qkv::kernels {

enum class Arithmetic : std::uint8_t { add, sub, mul, div };

// result[i] = a[i * a_stride] op b[i * b_stride]
template <class T>
struct CombineArgs {
  Arithmetic op;
  const T* a;
  std::ptrdiff_t a_stride;
  const T* b;
  std::ptrdiff_t b_stride;
  std::int64_t count;
  T* result;
};
template <class T>
void combine(const CombineArgs<T>& args);

// sums[i] += x[i]
template <class T>
void add_to(T* sums, const T* x, std::int64_t count);

// x[i] *= factor
template <class T>
void scale(T* x, std::int64_t count, T factor);

// The sum of x[i * stride], in double precision.
template <class T>
double sum(const T* x, std::ptrdiff_t stride, std::int64_t count);

// sums[i] += x[l * line_stride + i * stride] over all lines l, in double precision, but for groups of eight lines,
// which are summed as they are first.
template <class T>
struct AddLinesArgs {
  double* sums;
  const T* x;
  std::ptrdiff_t line_stride, stride;
  std::int64_t lines, count;
};
template <class T>
void add_lines(const AddLinesArgs<T>& args);

}  // namespace qkv::kernels
