// kernels/additive_gradients-inl.h: the backward pass of the additive score.
//
// Vectors run along the hidden units here: one evaluation of a pair's units serves the gradients of the query, of the
// key and of w, and none of them needs a sum across a vector. With r = 1 / (1 + e^2a e^2b), tanh(a + b) is 1 - 2 r and
// its derivative 4 r (1 - r). Here multiplications are the limit, not divisions: to share one between two vectors, as
// the score does, took 8.1 cycles for both instead of 7.0 (Zen 3). An estimated reciprocal is worth sharing.
#if defined(QKV_KERNELS_ADDITIVE_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ADDITIVE_GRADIENTS_INL_H_
#undef QKV_KERNELS_ADDITIVE_GRADIENTS_INL_H_
#else
#define QKV_KERNELS_ADDITIVE_GRADIENTS_INL_H_
#endif

#include <cstddef>

#include "kernels/additive-inl.h"
#include "kernels/gradients.h"
#include "kernels/processor.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// For two vectors of units: the function but for a factor and a summand, and a slope times it and times the derivative
// but for a factor.
struct FromExponentials {
  template <class D, class V>
  static HWY_INLINE void values(D d, V (&q)[2], V (&k)[2], V (&value)[2]) {
    const V one = hn::Set(d, 1);
    const V a = hn::MulAdd(q[0], k[0], one), b = hn::MulAdd(q[1], k[1], one);
    if constexpr (divides_by_estimate<V>) {
      const V both = reciprocal(hn::Mul(a, b));
      value[0] = hn::Mul(both, b);
      value[1] = hn::Mul(both, a);
    } else {
      value[0] = reciprocal(a);
      value[1] = reciprocal(b);
    }
  }
  template <class V>
  static HWY_INLINE V derivative(V, V value_slope, V value) {  // slope r (1 - r)
    return hn::NegMulAdd(value_slope, value, value_slope);
  }
  static constexpr int value_factor = -2, summand = 1;
};
struct FromProjections {
  template <class D, class V>
  static HWY_INLINE void values(D d, V (&q)[2], V (&k)[2], V (&value)[2]) {
    for (int i = 0; i < 2; ++i) value[i] = hn::Add(q[i], k[i]);
    tanh(d, value);
  }
  template <class V>
  static HWY_INLINE V derivative(V slope, V value_slope, V value) {  // slope (1 - t^2)
    return hn::NegMulAdd(value_slope, value, slope);
  }
  static constexpr int value_factor = 1, summand = 0;
};

// Two vectors of units at a time, one key after the other against all rows: what is read and added to for them stays in
// the first-level cache. One key, because two would not fit sixteen registers: three times as slow. `fused` takes four
// multiply-adds for a vector's gradients, otherwise it is two and three additions.
template <class Tanh, bool fused, class T>
HWY_INLINE void add_additive_gradients(const AdditiveGradientArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const int rows = args.rows;
  const std::ptrdiff_t stride = args.stride;
  auto total = hn::Zero(d);
  for (int j = 0; j < args.key_count && Tanh::summand != 0; ++j) {
    const T* slopes = args.slopes + j * args.lanes;
    for (int i = 0; i < rows; i += L) total = hn::Add(total, load_some<T>(slopes + i, rows - i));
  }
  const auto one = hn::Set(d, T(1)), summand = hn::SumOfLanes(d, total),
             value_factor = hn::Set(d, T(Tanh::value_factor));
  for (int c = 0; c < args.depth; c += 2 * L) {
    Vec<T> sum[2] = {hn::Zero(d), hn::Zero(d)};
    for (int j = 0; j < args.key_count; ++j) {
      const T *slopes = args.slopes + j * args.lanes, *key = args.keys + j * stride + c, *query = args.queries + c;
      Vec<T> dk[2] = {hn::Zero(d), hn::Zero(d)}, k[2] = {hn::Load(d, key), hn::Load(d, key + L)};
      T* to = args.dq + c;
      for (int i = 0; i < rows; ++i, query += stride, to += stride) {
        const auto slope = hn::Set(d, slopes[i]);
        Vec<T> q[2] = {hn::Load(d, query), hn::Load(d, query + L)}, value[2];
        Tanh::values(d, q, k, value);
        for (int v = 0; v < 2; ++v) {
          const auto dq = hn::Load(d, to + v * L);
          if constexpr (fused) {
            const auto derivative = Tanh::derivative(one, value[v], value[v]);
            sum[v] = hn::MulAdd(slope, value[v], sum[v]);
            dk[v] = hn::MulAdd(slope, derivative, dk[v]);
            hn::Store(hn::MulAdd(slope, derivative, dq), d, to + v * L);
          } else {
            const auto value_slope = hn::Mul(slope, value[v]);
            const auto through = Tanh::derivative(slope, value_slope, value[v]);
            sum[v] = hn::Add(sum[v], value_slope);
            dk[v] = hn::Add(dk[v], through);
            hn::Store(hn::Add(dq, through), d, to + v * L);
          }
        }
      }
      for (int v = 0; v < 2; ++v) {
        T* to_key = args.dk + j * stride + c + v * L;
        hn::Store(hn::Add(hn::Load(d, to_key), dk[v]), d, to_key);
      }
    }
    for (int v = 0; v < 2; ++v) {
      T* to_hidden = args.dhidden + c + v * L;
      hn::Store(hn::Add(hn::Load(d, to_hidden), hn::MulAdd(value_factor, sum[v], summand)), d, to_hidden);
    }
  }
}

// Intel's units of 512 bits add no faster than they multiply and add; AMD has others for additions.
template <class Tanh, class T>
void additive_gradients(const AdditiveGradientArgs<T>& args) {
  if (HWY_TARGET == HWY_AVX3 && is_intel()) return add_additive_gradients<Tanh, true>(args);
  add_additive_gradients<Tanh, false>(args);
}

// Vectors run along the queries, two units at a time; where one is left over it is taken twice, once with no weight.
template <class Tanh, class T>
void additive_rates(const AdditiveRateArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const auto one = hn::Set(d, T(1));
  for (int j = 0; j < args.key_count; ++j) {
    const T *key = args.keys + j * args.key_stride, *key_rates = args.key_rates + j * args.rate_stride;
    for (int row = 0; row < args.lanes; row += L) {
      auto sum = hn::Zero(d);
      for (int e = 0; e < args.depth; e += 2) {
        const int units[2] = {e, e + 1 < args.depth ? e + 1 : e};
        Vec<T> q[2], k[2], value[2];
        for (int i = 0; i < 2; ++i) {
          q[i] = hn::Load(d, args.queries + units[i] * args.lanes + row);
          k[i] = hn::Set(d, key[units[i]]);
        }
        Tanh::values(d, q, k, value);
        for (int i = 0; i < 2; ++i) {
          const auto rate =
              hn::Add(hn::Load(d, args.query_rates + units[i] * args.lanes + row), hn::Set(d, key_rates[units[i]]));
          const auto weight = hn::Set(d, i == 1 && units[1] == e ? T(0) : args.hidden[units[i]]);
          sum = hn::MulAdd(hn::Mul(weight, Tanh::derivative(one, value[i], value[i])), rate, sum);
        }
      }
      hn::Store(sum, d, args.rates + j * args.lanes + row);
    }
  }
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
