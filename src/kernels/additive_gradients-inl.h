// kernels/additive_gradients-inl.h: the backward pass of the additive score.
//
// Vectors run along the hidden units here: one evaluation of a pair's units serves the gradients of the query, of the
// key and of w, and none of them needs a sum across a vector. With r = 1 / (1 + e^2a e^2b), tanh(a + b) is 1 - 2 r and
// its derivative 4 r (1 - r); as in the score, two vectors of units share a division.
#if defined(QKV_KERNELS_ADDITIVE_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ADDITIVE_GRADIENTS_INL_H_
#undef QKV_KERNELS_ADDITIVE_GRADIENTS_INL_H_
#else
#define QKV_KERNELS_ADDITIVE_GRADIENTS_INL_H_
#endif

#include <cstddef>

#include "kernels/gradients.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// For two vectors of units, the derivative of tanh but for a factor, and the function but for a factor and a summand.
struct FromExponentials {
  template <class D, class V>
  static HWY_INLINE void units(D d, V (&q)[2], V (&k)[2], V (&derivative)[2], V (&value)[2]) {
    const V one = hn::Set(d, 1);
    const V a = hn::MulAdd(q[0], k[0], one), b = hn::MulAdd(q[1], k[1], one);
    const V inverse = hn::Div(one, hn::Mul(a, b));
    value[0] = hn::Mul(b, inverse);
    value[1] = hn::Mul(a, inverse);
    for (int i = 0; i < 2; ++i) derivative[i] = hn::NegMulAdd(value[i], value[i], value[i]);
  }
  static constexpr int factor = 4, value_factor = -2, summand = 1;
};
struct FromProjections {
  template <class D, class V>
  static HWY_INLINE void units(D d, V (&q)[2], V (&k)[2], V (&derivative)[2], V (&value)[2]) {
    for (int i = 0; i < 2; ++i) value[i] = hn::Add(q[i], k[i]);
    tanh(d, value);
    for (int i = 0; i < 2; ++i) derivative[i] = hn::NegMulAdd(value[i], value[i], hn::Set(d, 1));
  }
  static constexpr int factor = 1, value_factor = 1, summand = 0;
};

// Some keys, two vectors of units at a time, against all rows.
template <int keys, class Tanh, class T>
HWY_INLINE void additive_gradient_tile(const AdditiveGradientArgs<T>& args, int j) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const int lanes = args.lanes, rows = args.rows, depth = args.depth;
  const std::ptrdiff_t stride = args.stride;
  const T* slopes = args.slopes + j * lanes;
  T total = 0;
  for (int r = 0; r < keys; ++r) {
    for (int i = 0; i < rows; ++i) total += slopes[r * lanes + i];
  }
  for (int c = 0; c < depth; c += 2 * L) {
    Vec<T> dk[keys][2], k[keys][2], values[2] = {hn::Zero(d), hn::Zero(d)};
    for (int r = 0; r < keys; ++r) {
      for (int v = 0; v < 2; ++v) {
        dk[r][v] = hn::Zero(d);
        k[r][v] = hn::Load(d, args.keys + (j + r) * stride + c + v * L);
      }
    }
    const Vec<T> factor = hn::Set(d, T(Tanh::factor));
    const Vec<T> w[2] = {hn::Mul(factor, hn::Load(d, args.hidden + c)),
                         hn::Mul(factor, hn::Load(d, args.hidden + c + L))};
    const T* query = args.queries + c;
    T* to = args.dq + c;
    for (int i = 0; i < rows; ++i, query += stride, to += stride) {
      Vec<T> q[2] = {hn::Load(d, query), hn::Load(d, query + L)}, dq[2] = {hn::Zero(d), hn::Zero(d)};
      for (int r = 0; r < keys; ++r) {
        const auto slope = hn::Set(d, slopes[r * lanes + i]);
        Vec<T> derivative[2], value[2];
        Tanh::units(d, q, k[r], derivative, value);
        for (int v = 0; v < 2; ++v) {
          dq[v] = hn::MulAdd(slope, derivative[v], dq[v]);
          dk[r][v] = hn::MulAdd(slope, derivative[v], dk[r][v]);
          values[v] = hn::MulAdd(slope, value[v], values[v]);
        }
      }
      for (int v = 0; v < 2; ++v) hn::Store(hn::MulAdd(w[v], dq[v], hn::Load(d, to + v * L)), d, to + v * L);
    }
    for (int v = 0; v < 2; ++v) {
      for (int r = 0; r < keys; ++r) {
        T* at = args.dk + (j + r) * stride + c + v * L;
        hn::Store(hn::MulAdd(w[v], dk[r][v], hn::Load(d, at)), d, at);
      }
      T* at = args.dhidden + c + v * L;
      const auto sum = hn::MulAdd(hn::Set(d, T(Tanh::value_factor)), values[v], hn::Set(d, T(Tanh::summand) * total));
      hn::Store(hn::Add(hn::Load(d, at), sum), d, at);
    }
  }
}

template <class Tanh, class T>
void additive_gradients(const AdditiveGradientArgs<T>& args) {
#if HWY_TARGET == HWY_AVX3
  constexpr int at_once = 4;
#else
  constexpr int at_once = 2;
#endif
  int j = 0;
  for (; j + at_once <= args.key_count; j += at_once) additive_gradient_tile<at_once, Tanh>(args, j);
  for (; j < args.key_count; ++j) additive_gradient_tile<1, Tanh>(args, j);
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
