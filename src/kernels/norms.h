// kernels/norms.h: rows that are normalised: softmax and layer norm, and their derivatives.
//
// float runs on vectors of the instruction set, double, which serves gradient checks, on those of the baseline.
#pragma once

#include <cstdint>

#include <qkv/isa.h>

namespace qkv::kernels {

template <class T>
struct LayerNormArgs {
  const T* x;
  std::int64_t count;
  const T *gain, *shift;  // null: 1, 0
  T *mean, *scale;        // of the row; scale is 1 / sqrt(variance + epsilon)
  T epsilon;
  T* y;
};

template <class T>
struct LayerNormBackwardArgs {
  const T *x, *dy;
  std::int64_t count;
  const T* gain;  // null: 1
  T mean, scale;
  T* dx;                     // null: not wanted
  double *d_gain, *d_shift;  // added to; null: not wanted
};

template <class T>
struct NormKernels {
  // y = e^(x - lse) with lse = log sum e^x, which is returned. y may be x; null: only lse is wanted.
  T (*softmax)(const T* x, std::int64_t count, T* y);
  // dx = y (dy - sum y dy); dx may be dy.
  void (*softmax_backward)(const T* y, const T* dy, std::int64_t count, T* dx);
  // y = (e^(x - lse) - less) factor; y may be x.
  void (*weights_less)(const T* x, std::int64_t count, T lse, T less, T factor, T* y);
  void (*layer_norm)(const LayerNormArgs<T>& args);
  void (*layer_norm_backward)(const LayerNormBackwardArgs<T>& args);
};
template <class T>
const NormKernels<T>& norm_kernels(Isa isa);

}  // namespace qkv::kernels
