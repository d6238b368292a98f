// kernels/norms.cpp: rows that are normalised: softmax and layer norm, and their derivatives.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norms.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/isa.h"
#include "kernels/norms.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

template <class T>
inline constexpr std::int64_t L = lanes_of<T>;
inline constexpr int at_once = 4;  // vectors; see exp2

template <class T>
T largest(const T* x, std::int64_t count) {
  const Tag<T> d;
  auto highest = hn::Set(d, -std::numeric_limits<T>::infinity());
  std::int64_t i = 0;
  for (; i + L<T> <= count; i += L<T>) highest = max_of_numbers(highest, hn::LoadU(d, x + i));
  T result = hn::GetLane(hn::MaxOfLanes(d, highest));
  for (; i < count; ++i) result = std::max(result, x[i]);
  return result;
}

// y = 2^((x - start) log2(e)) = e^(x - start), unless y is null; returns the sum. x - start is at most 0.
template <class T>
T exponentials(const T* x, std::int64_t count, T start, T* y) {
  const Tag<T> d;
  constexpr std::int64_t step = at_once * L<T>;
  const auto s = hn::Set(d, start), unit = hn::Set(d, std::numbers::log2e_v<T>);
  HWY_ALIGN T beside[step];
  Vec<T> sum[at_once];
  for (int v = 0; v < at_once; ++v) sum[v] = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += step) {
    const std::int64_t left = count - i;
    if (left < step) {
      std::fill_n(beside, step, -std::numeric_limits<T>::infinity());  // whose exponentials are 0
      std::copy_n(x + i, left, beside);
    }
    const T* from = left < step ? beside : x + i;
    Vec<T> e[at_once];
    for (int v = 0; v < at_once; ++v) e[v] = hn::Mul(hn::Sub(hn::LoadU(d, from + v * L<T>), s), unit);
    exp2(d, e);
    for (int v = 0; v < at_once; ++v) sum[v] = hn::Add(sum[v], e[v]);
    if (y == nullptr) continue;
    T* to = left < step ? beside : y + i;
    for (int v = 0; v < at_once; ++v) hn::StoreU(e[v], d, to + v * L<T>);
    if (left < step) std::copy_n(beside, left, y + i);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
}

// y = y factor + added
template <class T>
void scale_and_add(T* y, std::int64_t count, T factor, T added) {
  const Tag<T> d;
  const auto f = hn::Set(d, factor), a = hn::Set(d, added);
  std::int64_t i = 0;
  for (; i + L<T> <= count; i += L<T>) hn::StoreU(hn::MulAdd(hn::LoadU(d, y + i), f, a), d, y + i);
  for (; i < count; ++i) y[i] = y[i] * factor + added;
}

template <class T>
T softmax(const T* x, std::int64_t count, T* y) {
  const T max = largest(x, count), sum = exponentials(x, count, max, y);
  if (y != nullptr) scale_and_add(y, count, T(1) / sum, T(0));
  return max + std::log(sum);
}

template <class T>
void weights_less(const T* x, std::int64_t count, T lse, T less, T factor, T* y) {
  exponentials(x, count, lse, y);
  scale_and_add(y, count, factor, -less * factor);
}

template <class T>
T dot(const T* a, const T* b, std::int64_t count) {
  const Tag<T> d;
  auto even = hn::Zero(d), odd = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * L<T> <= count; i += 2 * L<T>) {
    even = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), even);
    odd = hn::MulAdd(hn::LoadU(d, a + i + L<T>), hn::LoadU(d, b + i + L<T>), odd);
  }
  T rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd))) + rest;
}

template <class T>
void softmax_backward(const T* y, const T* dy, std::int64_t count, T* dx) {
  const Tag<T> d;
  const T mean = dot(y, dy, count);
  const auto m = hn::Set(d, mean);
  std::int64_t i = 0;
  for (; i + L<T> <= count; i += L<T>) {
    hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Sub(hn::LoadU(d, dy + i), m)), d, dx + i);
  }
  for (; i < count; ++i) dx[i] = y[i] * (dy[i] - mean);
}

// The sum of (x - centre)^power, power 1 or 2.
template <int power, class T>
T sum_from(const T* x, std::int64_t count, T centre) {
  const Tag<T> d;
  const auto c = hn::Set(d, centre);
  Vec<T> sum[2] = {hn::Zero(d), hn::Zero(d)};
  std::int64_t i = 0;
  for (; i + 2 * L<T> <= count; i += 2 * L<T>) {
    for (int v = 0; v < 2; ++v) {
      const auto away = hn::Sub(hn::LoadU(d, x + i + v * L<T>), c);
      sum[v] = power == 2 ? hn::MulAdd(away, away, sum[v]) : hn::Add(sum[v], away);
    }
  }
  T rest = 0;
  for (; i < count; ++i) rest += power == 2 ? (x[i] - centre) * (x[i] - centre) : x[i] - centre;
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[0], sum[1]))) + rest;
}

template <class T>
void layer_norm(const LayerNormArgs<T>& args) {
  const Tag<T> d;
  const T *x = args.x, *gain = args.gain, *shift = args.shift;
  const T n = static_cast<T>(args.count);
  // The mean again, from the first one: what was rounded away comes back.
  const T first = sum_from<1>(x, args.count, T(0)) / n;
  const T mean = first + sum_from<1>(x, args.count, first) / n;
  const T scale = T(1) / std::sqrt(sum_from<2>(x, args.count, mean) / n + args.epsilon);
  *args.mean = mean;
  *args.scale = scale;
  const auto m = hn::Set(d, mean), s = hn::Set(d, scale);
  std::int64_t i = 0;
  for (; i + L<T> <= args.count; i += L<T>) {
    auto y = hn::Mul(hn::Sub(hn::LoadU(d, x + i), m), s);
    if (gain != nullptr) y = hn::Mul(y, hn::LoadU(d, gain + i));
    if (shift != nullptr) y = hn::Add(y, hn::LoadU(d, shift + i));
    hn::StoreU(y, d, args.y + i);
  }
  for (; i < args.count; ++i) {
    T y = (x[i] - mean) * scale;
    if (gain != nullptr) y *= gain[i];
    if (shift != nullptr) y += shift[i];
    args.y[i] = y;
  }
}

template <class T>
void layer_norm_backward(const LayerNormBackwardArgs<T>& args) {
  const Tag<T> d;
  const T *x = args.x, *dy = args.dy, *gain = args.gain;
  const T mean = args.mean, scale = args.scale;
  if (args.d_gain != nullptr) {
    for (std::int64_t j = 0; j < args.count; ++j) args.d_gain[j] += static_cast<double>(dy[j] * (x[j] - mean) * scale);
  }
  if (args.d_shift != nullptr) {
    for (std::int64_t j = 0; j < args.count; ++j) args.d_shift[j] += static_cast<double>(dy[j]);
  }
  if (args.dx == nullptr) return;
  // g = dy gain and n = (x - mean) scale: dx = scale (g - mean(g) - n mean(g n)).
  const auto m = hn::Set(d, mean), s = hn::Set(d, scale);
  auto sum = hn::Zero(d), dot = hn::Zero(d);
  T rest = 0, rest_dot = 0;
  std::int64_t i = 0;
  for (; i + L<T> <= args.count; i += L<T>) {
    auto g = hn::LoadU(d, dy + i);
    if (gain != nullptr) g = hn::Mul(g, hn::LoadU(d, gain + i));
    sum = hn::Add(sum, g);
    dot = hn::MulAdd(g, hn::Sub(hn::LoadU(d, x + i), m), dot);
  }
  for (; i < args.count; ++i) {
    const T g = gain != nullptr ? dy[i] * gain[i] : dy[i];
    rest += g;
    rest_dot += g * (x[i] - mean);
  }
  const T n = static_cast<T>(args.count);
  const T mean_g = (hn::GetLane(hn::SumOfLanes(d, sum)) + rest) / n;
  const T slope = (hn::GetLane(hn::SumOfLanes(d, dot)) + rest_dot) / n * scale * scale;
  const auto mg = hn::Set(d, mean_g), sl = hn::Set(d, slope);
  for (i = 0; i + L<T> <= args.count; i += L<T>) {
    auto g = hn::LoadU(d, dy + i);
    if (gain != nullptr) g = hn::Mul(g, hn::LoadU(d, gain + i));
    const auto away = hn::Sub(hn::LoadU(d, x + i), m);
    hn::StoreU(hn::Mul(s, hn::NegMulAdd(away, sl, hn::Sub(g, mg))), d, args.dx + i);
  }
  for (; i < args.count; ++i) {
    const T g = gain != nullptr ? dy[i] * gain[i] : dy[i];
    args.dx[i] = scale * (g - mean_g - (x[i] - mean) * slope);
  }
}

template <class T>
constexpr NormKernels<T> norm_table = {softmax<T>, softmax_backward<T>, weights_less<T>, layer_norm<T>,
                                       layer_norm_backward<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const NormKernels<float>& norm_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, norm_table<float>);
}
template <>
const NormKernels<double>& norm_kernels(Isa /*isa*/) {
  return HWY_STATIC_DISPATCH(norm_table<double>);
}

}  // namespace qkv::kernels
#endif
