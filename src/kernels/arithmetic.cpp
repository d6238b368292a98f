// kernels/arithmetic.cpp: sums and products along lines of numbers.
#include "kernels/arithmetic.h"

namespace qkv::kernels {
namespace {

template <class T, class Op>
void combine_by(const CombineArgs<T>& args, Op op) {
  const T *a = args.a, *b = args.b;
  T* result = args.result;
  if (args.a_stride == 1 && args.b_stride == 1) {
    for (std::int64_t i = 0; i < args.count; ++i) result[i] = op(a[i], b[i]);
  } else {
    for (std::int64_t i = 0; i < args.count; ++i) result[i] = op(a[i * args.a_stride], b[i * args.b_stride]);
  }
}

}  // namespace

template <class T>
void combine(const CombineArgs<T>& args) {
  switch (args.op) {
    case Arithmetic::add:
      return combine_by(args, [](T x, T y) { return x + y; });
    case Arithmetic::sub:
      return combine_by(args, [](T x, T y) { return x - y; });
    case Arithmetic::mul:
      return combine_by(args, [](T x, T y) { return x * y; });
    case Arithmetic::div:
      return combine_by(args, [](T x, T y) { return x / y; });
  }
}

template <class T>
void add_to(T* sums, const T* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += x[i];
}

template <class T>
void scale(T* x, std::int64_t count, T factor) {
  for (std::int64_t i = 0; i < count; ++i) x[i] *= factor;
}

// Four sums side by side: one would wait for itself at every step.
template <class T>
double sum(const T* x, std::ptrdiff_t stride, std::int64_t count) {
  double sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int s = 0; s < 4; ++s) sums[s] += static_cast<double>(x[(i + s) * stride]);
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(x[i * stride]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <class T>
void add_lines(const AddLinesArgs<T>& args) {
  constexpr int group = 8;
  const std::ptrdiff_t line = args.line_stride;
  std::int64_t l = 0;
  if (args.stride == 1) {
    for (; l + group <= args.lines; l += group) {
      const T* x = args.x + l * line;
      for (std::int64_t i = 0; i < args.count; ++i) {
        const T sum = ((x[i] + x[line + i]) + (x[2 * line + i] + x[3 * line + i])) +
                      ((x[4 * line + i] + x[5 * line + i]) + (x[6 * line + i] + x[7 * line + i]));
        args.sums[i] += static_cast<double>(sum);
      }
    }
  }
  for (; l < args.lines; ++l) {
    const T* x = args.x + l * line;
    for (std::int64_t i = 0; i < args.count; ++i) args.sums[i] += static_cast<double>(x[i * args.stride]);
  }
}

template void combine(const CombineArgs<float>&);
template void combine(const CombineArgs<double>&);
template void add_to(float*, const float*, std::int64_t);
template void add_to(double*, const double*, std::int64_t);
template void scale(float*, std::int64_t, float);
template void scale(double*, std::int64_t, double);
template double sum(const float*, std::ptrdiff_t, std::int64_t);
template double sum(const double*, std::ptrdiff_t, std::int64_t);
template void add_lines(const AddLinesArgs<float>&);
template void add_lines(const AddLinesArgs<double>&);

}  // namespace qkv::kernels
