// kernels/vector-inl.h: the vector vocabulary of all kernels: lanes, NaN-keeping bounds, 2^x, tanh and log2.
//
// Compiled once per instruction set; see Highway's foreach_target.
#if defined(QKV_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_VECTOR_INL_H_
#undef QKV_KERNELS_VECTOR_INL_H_
#else
#define QKV_KERNELS_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <numbers>
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

// score + added, and -inf where added is -inf, whatever the score was: NaN or +inf must not survive exclusion.
template <class V>
HWY_INLINE V add_or_exclude(V score, V added) {
  const hn::DFromV<V> d;
  const V excluded = hn::Set(d, -std::numeric_limits<hn::TFromD<decltype(d)>>::infinity());
  return hn::IfThenElse(hn::Eq(added, excluded), excluded, hn::Add(score, added));
}

// Constants of 2^x in the format of T.
template <class T>
struct Exp2Constants;
template <>
struct Exp2Constants<float> {
  static constexpr int fraction_bits = 23;
  static constexpr float lowest = -126;  // its exponent, with the bias of `shift`, is the one that stands for 0
  // 1.5 * 2^23: a sum with it has no fraction; and the exponent's bias, less 1 to be even, as ties go to even.
  static constexpr float shift = 12582912.0f + 126;
  // 2^f on [-1/2, 1/2], minimax for the relative error (9e-8), the constant term being 1.
  static constexpr float polynomial[] = {1.3264719e-3f, 9.671513e-3f, 5.550734e-2f, 2.4022242e-1f, 6.93147e-1f};
  // (2^f - 1) / f on the same interval, minimax for the relative error (2.2e-8).
  static constexpr float difference[] = {1.5403513e-4f, 1.3390736e-3f, 9.618238e-3f,
                                         5.5503573e-2f, 2.402265e-1f,  6.931472e-1f};
};
template <>
struct Exp2Constants<double> {
  static constexpr int fraction_bits = 52;
  static constexpr double lowest = -1022;
  static constexpr double shift = 6755399441055744.0 + 1022;
  // The Taylor series of 2^f: ln(2)^i / i!, whose first omitted term is below 5e-18 on [-1/2, 1/2].
  static constexpr double polynomial[] = {1.3691488853904129e-12, 2.5678435993488206e-11, 4.4455382718708116e-10,
                                          7.0549116208011234e-9,  1.0178086009239699e-7,  1.3215486790144309e-6,
                                          1.5252733804059840e-5,  1.5403530393381609e-4,  1.3333558146428443e-3,
                                          9.6181291076284772e-3,  5.5504108664821580e-2,  2.4022650695910071e-1,
                                          6.9314718055994531e-1};
  static constexpr auto& difference = polynomial;
};

// 2^x for x < 127 (float), 1023 (double). Relative error: 1.7e-7 (float), 3e-16 (double); without fused multiply-add,
// as in the baseline, see docs/numerics.md. Below 2^-125.5 (float), 2^-1021.5 (double) it is exactly 0, for -inf too;
// 2^0 is exactly 1; NaN, of any payload, stays NaN.
//
// x = n + f with |f| <= 1/2. Adding `shift` leaves n plus the exponent's bias in the low bits of the sum; moved to the
// exponent's place these are 2^(n-1), and 0 for the least n; the polynomial is twice 2^f. The product with the power of
// two, rather than an integer addition to the exponent, keeps NaN and gives exact zeros.
//
// Several vectors at once, step by step: the chain of dependent steps is long, and one vector after the other fills the
// processor's scheduler with what waits. On Zen 3 additions and multiply-adds together are the limit (5 cycles a
// vector), hence the rounding instruction in place of one of them.
template <int count, class D, class V = hn::Vec<D>>
HWY_INLINE void exp2(D d, V (&x)[count]) {
  using T = hn::TFromD<D>;
  using Constants = Exp2Constants<T>;
  const hn::RebindToUnsigned<D> bits;
  V power[count], f[count], p[count];
  for (int i = 0; i < count; ++i) x[i] = at_least(d, x[i], hn::Set(d, Constants::lowest));
  for (int i = 0; i < count; ++i) power[i] = hn::Add(x[i], hn::Set(d, Constants::shift));
  for (int i = 0; i < count; ++i) f[i] = hn::Round(x[i]);
  for (int i = 0; i < count; ++i) f[i] = hn::Sub(x[i], f[i]);
  for (int i = 0; i < count; ++i) p[i] = hn::Set(d, 2 * Constants::polynomial[0]);
  for (std::size_t term = 1; term < std::size(Constants::polynomial); ++term) {
    for (int i = 0; i < count; ++i) p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, 2 * Constants::polynomial[term]));
  }
  for (int i = 0; i < count; ++i) p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, T(2)));
  for (int i = 0; i < count; ++i) {
    x[i] = hn::Mul(p[i], hn::BitCast(d, hn::ShiftLeft<Constants::fraction_bits>(hn::BitCast(bits, power[i]))));
  }
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2(D d, V x) {
  V one[1] = {x};
  exp2<1>(d, one);
  return one[0];
}

// tanh(x), relative error 3e-7 (float), 6e-16 (double); NaN stays NaN. Several vectors at once, as above.
//
// -m / (2 + m) with m = e^(-2|x|) - 1 = 2^n (2^f - 1) + (2^n - 1): near 0, where n is 0, m keeps its digits.
template <int count, class D, class V = hn::Vec<D>>
HWY_INLINE void tanh(D d, V (&x)[count]) {
  using T = hn::TFromD<D>;
  using Constants = Exp2Constants<T>;
  const hn::RebindToUnsigned<D> bits;
  V f[count], power[count], m[count];
  for (int i = 0; i < count; ++i) {
    f[i] = hn::Mul(hn::Abs(x[i]), hn::Set(d, static_cast<T>(-2 * std::numbers::log2e)));
  }
  // Far below, m is -1.
  for (int i = 0; i < count; ++i) f[i] = at_least(d, f[i], hn::Set(d, T(-100)));
  for (int i = 0; i < count; ++i) power[i] = hn::Round(f[i]);
  for (int i = 0; i < count; ++i) f[i] = hn::Sub(f[i], power[i]);
  for (int i = 0; i < count; ++i) power[i] = hn::Add(power[i], hn::Set(d, Constants::shift + 1));
  for (int i = 0; i < count; ++i) {
    power[i] = hn::BitCast(d, hn::ShiftLeft<Constants::fraction_bits>(hn::BitCast(bits, power[i])));
  }
  for (int i = 0; i < count; ++i) m[i] = hn::Set(d, Constants::difference[0]);
  for (std::size_t term = 1; term < std::size(Constants::difference); ++term) {
    for (int i = 0; i < count; ++i) m[i] = hn::MulAdd(m[i], f[i], hn::Set(d, Constants::difference[term]));
  }
  for (int i = 0; i < count; ++i) m[i] = hn::Mul(m[i], f[i]);
  for (int i = 0; i < count; ++i) m[i] = hn::MulAdd(m[i], power[i], hn::Sub(power[i], hn::Set(d, T(1))));
  for (int i = 0; i < count; ++i) x[i] = hn::CopySign(hn::Div(m[i], hn::Add(m[i], hn::Set(d, T(2)))), x[i]);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh(D d, V x) {
  V one[1] = {x};
  tanh<1>(d, one);
  return one[0];
}

// log2(x) for x >= 0, relative error 2.5e-7 (float), 5e-16 (double). log2(1) is exactly 0, log2(0) = -inf,
// log2(inf) = inf; NaN, of any payload, stays NaN.
//
// x = 2^n m with m between sqrt(1/2) and sqrt(2); ln(m) = 2 atanh(s) = 2 (s + s^3/3 + s^5/5 + ...),
// s = (m - 1) / (m + 1), |s| < 0.172.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log2(D d, V x) {
  using T = hn::TFromD<D>;
  using Bits = hwy::MakeUnsigned<T>;
  using Limits = std::numeric_limits<T>;
  constexpr int fraction_bits = Limits::digits - 1;
  constexpr Bits fraction = (Bits{1} << fraction_bits) - 1, one_bits = std::bit_cast<Bits>(T(1)),
                 least_bits = std::bit_cast<Bits>(static_cast<T>(1 / std::numbers::sqrt2));
  constexpr T power = static_cast<T>(Bits{1} << fraction_bits);  // a sum with it has the other one in its low bits
  constexpr T bias = static_cast<T>(one_bits >> fraction_bits);
  const hn::RebindToUnsigned<D> bits;
  const auto one = hn::Set(d, T(1));
  // Subnormal numbers have no exponent of their own.
  const auto subnormal = hn::Lt(x, hn::Set(d, Limits::min()));
  const auto normal = hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, power)), x);
  const auto shift = hn::IfThenElse(subnormal, hn::Set(d, power + bias + fraction_bits), hn::Set(d, power + bias));
  // Moved so that the exponent changes at sqrt(1/2) rather than at 1.
  const auto moved = hn::Add(hn::BitCast(bits, normal), hn::Set(bits, one_bits - least_bits));
  const auto n = hn::Sub(
      hn::BitCast(d, hn::Or(hn::ShiftRight<fraction_bits>(moved), hn::Set(bits, std::bit_cast<Bits>(power)))), shift);
  const auto m = hn::BitCast(d, hn::Add(hn::And(moved, hn::Set(bits, fraction)), hn::Set(bits, least_bits)));
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), y = hn::Mul(s, s);
  // The first omitted term is below 2.1e-9 (float), 1e-18 (double) of the first one.
  constexpr int terms = std::is_same_v<T, double> ? 11 : 5;
  const auto coefficient = [d](int term) {
    return hn::Set(d, static_cast<T>(2 * std::numbers::log2e / (2 * term + 1)));
  };
  auto p = coefficient(terms - 1);
  for (int term = terms - 2; term > 0; --term) p = hn::MulAdd(p, y, coefficient(term));
  const auto log = hn::Add(n, hn::MulAdd(hn::Mul(s, y), p, hn::Mul(s, coefficient(0))));
  const auto infinity = hn::Set(d, Limits::infinity());
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), hn::IfThenElse(hn::Lt(x, infinity), log, x));
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
