// kernels/vector-inl.h: the vector vocabulary of all kernels: lanes, NaN-keeping bounds, 2^x and tanh.
//
// Compiled once per instruction set; see Highway's foreach_target.
#if defined(QKV_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_VECTOR_INL_H_
#undef QKV_KERNELS_VECTOR_INL_H_
#else
#define QKV_KERNELS_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;
template <class T>
inline constexpr int lanes_of = static_cast<int>(hn::MaxLanes(Tag<T>()));

// max(x, bound), and NaN where x is NaN. x86's max gives its second operand when either is NaN, which is what is wanted
// here; Highway's portable code drops NaN and needs the comparison.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_least(D /*d*/, V x, V bound) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::Max(bound, x);
#else
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#endif
}

// The larger one; NaN in x is passed over. x86's max gives its second operand when the first is NaN.
template <class V>
HWY_INLINE V max_of_numbers(V highest, V x) {
  return hn::Max(x, highest);
}

// 2^x for x <= 127: relative error 8e-8 (float), 3e-16 (double) where the result is normal. Below the least normal
// number the result is exactly 0, for -inf too; NaN, of any payload, stays NaN.
//
// x = n + f with |f| <= 1/2. Adding `shift` leaves n plus the exponent's bias in the low bits of the sum; moved to the
// exponent's place these are 2^n, and 0 for the least n. The product with that, rather than an integer addition to the
// exponent, is what keeps NaN and gives exact zeros; it costs the same.
HWY_INLINE Vec<float> exp2(Tag<float> d, Vec<float> x) {
  const hn::RebindToUnsigned<Tag<float>> du;
  x = at_least(d, x, hn::Set(d, -127.0f));
  const auto shift = hn::Set(d, 12582912.0f + 127.0f);
  const auto sum = hn::Add(x, shift);
  const auto f = hn::Sub(x, hn::Sub(sum, shift));
  // Minimax for the relative error on [-1/2, 1/2].
  auto p = hn::Set(d, 1.5355012e-4f);
  p = hn::MulAdd(p, f, hn::Set(d, 1.3398891e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.618431e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 5.5503324e-2f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.4022648e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 6.931472e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, sum))));
}

HWY_INLINE Vec<double> exp2(Tag<double> d, Vec<double> x) {
  const hn::RebindToUnsigned<Tag<double>> du;
  x = at_least(d, x, hn::Set(d, -1023.0));
  const auto shift = hn::Set(d, 6755399441055744.0 + 1023.0);
  const auto sum = hn::Add(x, shift);
  const auto f = hn::Sub(x, hn::Sub(sum, shift));
  // The Taylor series of 2^f: ln(2)^i / i!, whose first omitted term is below 5e-18 on [-1/2, 1/2].
  auto p = hn::Set(d, 1.3691488853904129e-12);
  p = hn::MulAdd(p, f, hn::Set(d, 2.5678435993488206e-11));
  p = hn::MulAdd(p, f, hn::Set(d, 4.4455382718708116e-10));
  p = hn::MulAdd(p, f, hn::Set(d, 7.0549116208011234e-9));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0178086009239699e-7));
  p = hn::MulAdd(p, f, hn::Set(d, 1.3215486790144309e-6));
  p = hn::MulAdd(p, f, hn::Set(d, 1.5252733804059840e-5));
  p = hn::MulAdd(p, f, hn::Set(d, 1.5403530393381609e-4));
  p = hn::MulAdd(p, f, hn::Set(d, 1.3333558146428443e-3));
  p = hn::MulAdd(p, f, hn::Set(d, 9.6181291076284772e-3));
  p = hn::MulAdd(p, f, hn::Set(d, 5.5504108664821580e-2));
  p = hn::MulAdd(p, f, hn::Set(d, 2.4022650695910071e-1));
  p = hn::MulAdd(p, f, hn::Set(d, 6.9314718055994531e-1));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(du, sum))));
}

// tanh(x), relative error 3e-7 (float), 2e-15 (double); NaN stays NaN.
//
// (1 - e) / (1 + e) with e = 2^(-2|x| log2 e) loses digits near 0, so there the odd series
// x + x^3 r(x^2) takes over; the bound is where both are equally good.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr bool is_double = std::is_same_v<T, double>;
  const auto magnitude = hn::Abs(x);
  const auto e = exp2(d, hn::Mul(magnitude, hn::Set(d, static_cast<T>(-2.8853900817779268))));
  const auto one = hn::Set(d, static_cast<T>(1));
  const auto large = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  const auto y = hn::Mul(x, x);
  // Coefficients of the Taylor series of tanh: 2^2n (2^2n - 1) B_2n / (2n)!.
  constexpr T series[] = {
      static_cast<T>(-3.3333333333333333e-1), static_cast<T>(1.3333333333333333e-1),
      static_cast<T>(-5.3968253968253968e-2), static_cast<T>(2.1869488536155203e-2),
      static_cast<T>(-8.8632355299021966e-3), static_cast<T>(3.5921280365724810e-3),
      static_cast<T>(-1.4558343870513183e-3), static_cast<T>(5.9002744094558598e-4),
      static_cast<T>(-2.3912911424355248e-4), static_cast<T>(9.6915379569294503e-5)};
  constexpr int terms = is_double ? 10 : 5;
  auto p = hn::Set(d, series[terms - 1]);
  for (int i = terms - 2; i >= 0; --i) p = hn::MulAdd(p, y, hn::Set(d, series[i]));
  const auto small = hn::MulAdd(hn::Mul(x, y), p, x);
  const auto bound = hn::Set(d, static_cast<T>(is_double ? 0.15 : 0.25));
  return hn::IfThenElse(hn::Lt(magnitude, bound), small, large);
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
