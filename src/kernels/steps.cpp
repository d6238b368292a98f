// kernels/steps.cpp: what optimisers do to each element of a parameter.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/steps.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/isa.h"
#include "kernels/steps.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// The compiler makes vectors of it.
template <class T>
void sgd(const SgdArgs<T>& args) {
  T *HWY_RESTRICT p = args.p, *HWY_RESTRICT b = args.b;
  const T* HWY_RESTRICT gradient = args.gradient;
  const T rate = args.rate, momentum = args.momentum, share = args.share, decay = args.decay;
  const T direct = args.nesterov ? T(1) : T(0), by_b = args.nesterov ? momentum : T(1);
  if (b == nullptr) {
    for (std::int64_t i = 0; i < args.count; ++i) p[i] -= rate * (gradient[i] + decay * p[i]);
    return;
  }
  for (std::int64_t i = 0; i < args.count; ++i) {
    const T g = gradient[i] + decay * p[i];
    b[i] = momentum * b[i] + share * g;
    p[i] -= rate * (direct * g + by_b * b[i]);
  }
}

template <class T>
void adam(const AdamArgs<T>& args) {
  const Tag<T> d;
  constexpr std::int64_t L = lanes_of<T>;
  std::int64_t i = 0;
  for (; i + L <= args.count; i += L) {
    auto p = hn::Mul(hn::LoadU(d, args.p + i), hn::Set(d, args.keep));
    const auto g = hn::MulAdd(hn::Set(d, args.decay), p, hn::LoadU(d, args.gradient + i));
    const auto m = hn::MulAdd(hn::Set(d, args.beta1), hn::LoadU(d, args.m + i), hn::Mul(hn::Set(d, args.share1), g));
    const auto v =
        hn::MulAdd(hn::Set(d, args.beta2), hn::LoadU(d, args.v + i), hn::Mul(hn::Mul(hn::Set(d, args.share2), g), g));
    const auto below = hn::MulAdd(hn::Sqrt(v), hn::Set(d, args.root), hn::Set(d, args.epsilon));
    p = hn::Sub(p, hn::Div(hn::Mul(hn::Set(d, args.rate), m), below));
    hn::StoreU(m, d, args.m + i);
    hn::StoreU(v, d, args.v + i);
    hn::StoreU(p, d, args.p + i);
  }
  for (; i < args.count; ++i) {
    const T p = args.p[i] * args.keep, g = args.gradient[i] + args.decay * p;
    const T m = args.beta1 * args.m[i] + args.share1 * g;
    const T v = args.beta2 * args.v[i] + args.share2 * g * g;
    args.m[i] = m;
    args.v[i] = v;
    args.p[i] = p - args.rate * m / (std::sqrt(v) * args.root + args.epsilon);
  }
}

template <class T>
double sum_of_squares(const T* x, std::int64_t count) {
  double sums[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int s = 0; s < 4; ++s) sums[s] += static_cast<double>(x[i + s]) * static_cast<double>(x[i + s]);
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

template <class T>
constexpr StepKernels<T> step_table = {sgd<T>, adam<T>, sum_of_squares<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const StepKernels<float>& step_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, step_table<float>);
}
template <>
const StepKernels<double>& step_kernels(Isa /*isa*/) {
  return HWY_STATIC_DISPATCH(step_table<double>);
}

}  // namespace qkv::kernels
#endif
