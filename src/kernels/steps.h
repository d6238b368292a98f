// kernels/steps.h: what optimisers do to each element of a parameter.
#pragma once

#include <cstdint>

#include <qkv/isa.h>

namespace qkv::kernels {

// g = gradient + decay p; with momentum: b = momentum b + share g, g = b or g + momentum b; p -= rate g.
template <class T>
struct SgdArgs {
  T* p;
  const T* gradient;
  T* b;  // null: no momentum
  std::int64_t count;
  T rate, momentum, share, decay;
  bool nesterov;
};

// p *= keep; g = gradient + decay p; m = beta1 m + share1 g; v = beta2 v + share2 g^2;
// p -= rate m / (sqrt(v) root + epsilon). The shares are 1 - beta, rounded once.
template <class T>
struct AdamArgs {
  T* p;
  const T* gradient;
  T *m, *v;
  std::int64_t count;
  T keep, decay, beta1, share1, beta2, share2, rate, root, epsilon;
};

// double, which training rarely uses, runs on vectors of the baseline.
template <class T>
struct StepKernels {
  void (*sgd)(const SgdArgs<T>& args);
  void (*adam)(const AdamArgs<T>& args);
  // The sum of the squares, in double precision.
  double (*sum_of_squares)(const T* x, std::int64_t count);
};
template <class T>
const StepKernels<T>& step_kernels(Isa isa);

}  // namespace qkv::kernels
