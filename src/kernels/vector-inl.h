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

#include <algorithm>
#include <bit>
#include <cmath>
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

// The largest magnitude of [rows][width]; NaN is passed over.
template <class T>
HWY_INLINE T largest_magnitude(const T* from, std::ptrdiff_t stride, int rows, std::int64_t width) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>, chains = 4;  // one would wait for itself
  Vec<T> highest[chains];
  for (auto& x : highest) x = hn::Zero(d);
  T rest = 0;
  for (int r = 0; r < rows; ++r, from += stride) {
    std::int64_t i = 0;
    for (; i + chains * L <= width; i += chains * L) {
      for (int v = 0; v < chains; ++v) {
        highest[v] = max_of_numbers(highest[v], hn::Abs(hn::LoadU(d, from + i + v * L)));
      }
    }
    for (; i + L <= width; i += L) highest[0] = max_of_numbers(highest[0], hn::Abs(hn::LoadU(d, from + i)));
    for (; i < width; ++i) rest = std::max(rest, std::abs(from[i]));
  }
  const auto all = hn::Max(hn::Max(highest[0], highest[1]), hn::Max(highest[2], highest[3]));
  return std::max(rest, hn::GetLane(hn::MaxOfLanes(d, all)));
}

// score + added, and `excluded` where added is -inf, whatever the score was: NaN or +inf must not survive exclusion.
template <class V>
HWY_INLINE V add_or_exclude(V score, V added, V excluded) {
  const hn::DFromV<V> d;
  const V excludes = hn::Set(d, -std::numeric_limits<hn::TFromD<decltype(d)>>::infinity());
  return hn::IfThenElse(hn::Eq(added, excludes), excluded, hn::Add(score, added));
}
template <class V>
HWY_INLINE V add_or_exclude(V score, V added) {
  const hn::DFromV<V> d;
  return add_or_exclude(score, added, hn::Set(d, -std::numeric_limits<hn::TFromD<decltype(d)>>::infinity()));
}

// Constants of 2^x in the format of T.
template <class T>
struct Exp2Constants;
template <>
struct Exp2Constants<float> {
  static constexpr int fraction_bits = 23;
  static constexpr int bias = 127;
  static constexpr int lowest = -126, lowest_of_weights = -100;  // see Reach; even, as ties go to even
  static constexpr float whole = 12582912.0f;                    // 1.5 * 2^23: a sum with it has no fraction
  // 2^f on [-1/2, 1/2], minimax for the relative error (9e-8), the constant term being 1.
  static constexpr float polynomial[] = {1.3264719e-3f, 9.671513e-3f, 5.550734e-2f, 2.4022242e-1f, 6.93147e-1f};
  // The same on [0, 1] (8.2e-8).
  static constexpr float above_floor[] = {1.86712982e-3f, 9.01708007e-3f, 5.57998903e-2f, 2.40164384e-1f,
                                          6.93151355e-1f};
  // (2^f - 1) / f on [-1/2, 1/2], minimax for the relative error (2.2e-8).
  static constexpr float difference[] = {1.5403513e-4f, 1.3390736e-3f, 9.618238e-3f,
                                         5.5503573e-2f, 2.402265e-1f,  6.931472e-1f};
};
template <>
struct Exp2Constants<double> {
  static constexpr int fraction_bits = 52;
  static constexpr int bias = 1023;
  static constexpr int lowest = -1022, lowest_of_weights = lowest;
  static constexpr double whole = 6755399441055744.0;
  // The Taylor series of 2^f: ln(2)^i / i!, whose first omitted term is below 5e-18 on [-1/2, 1/2].
  static constexpr double polynomial[] = {1.3691488853904129e-12, 2.5678435993488206e-11, 4.4455382718708116e-10,
                                          7.0549116208011234e-9,  1.0178086009239699e-7,  1.3215486790144309e-6,
                                          1.5252733804059840e-5,  1.5403530393381609e-4,  1.3333558146428443e-3,
                                          9.6181291076284772e-3,  5.5504108664821580e-2,  2.4022650695910071e-1,
                                          6.9314718055994531e-1};
  static constexpr auto& difference = polynomial;
};

// How far down 2^x is computed; what is smaller is exactly 0. All the way, or as far as matters for weights, of which
// the largest is 1: products of smaller ones with values, and sums that begin with them, would be subnormal numbers,
// with which Intel's processors need 100 times as long (ALiBi at T = 512 had 75 % of the speed it has).
enum class Reach { all, weights };
template <class T, Reach reach>
inline constexpr int lowest_exponent =
    reach == Reach::all ? Exp2Constants<T>::lowest : Exp2Constants<T>::lowest_of_weights;

// 2^x for x < 127 (float), 1023 (double). Relative error: 1.7e-7 (float), 3e-16 (double); without fused multiply-add,
// as in the baseline, see docs/numerics.md. Below 2^-125.5 (float; weights: 2^-99.5), 2^-1021.5 (double) it is exactly
// 0, for -inf too; 2^0 is exactly 1; NaN, of any payload, stays NaN.
//
// x = n + f with |f| <= 1/2. Adding `shift` leaves n - lowest in the low bits of the sum; moved to the exponent's place
// these are a power of two, and 0 for the lowest n; the polynomial has the factor that is missing. The product with the
// power of two, rather than an integer addition to the exponent, keeps NaN and gives exact zeros.
//
// AVX-512 has the fraction above the next lower integer, and the product with the power of that integer, in an
// instruction each: 10 instructions a vector with the difference before and the sum after, instead of 14. There f is in
// [0, 1), x need not be bounded, and a comparison makes the zeros.
//
// Several vectors at once, step by step: the chain of dependent steps is long, and one vector after the other fills the
// processor's scheduler with what waits. On Zen 3 additions and multiply-adds together are the limit (5 cycles a
// vector), hence the rounding instruction in place of one of them.
//
// In two steps, for who needs x as it is between them: x no less than the lowest exponent, where 2^x is 0 and x is
// finite.
template <Reach reach = Reach::all, class D, class V = hn::Vec<D>>
HWY_INLINE V bounded_for_exp2(D d, V x) {
  using T = hn::TFromD<D>;
  return at_least(d, x, hn::Set(d, T(lowest_exponent<T, reach>)));
}
template <Reach reach = Reach::all, int count, class D, class V = hn::Vec<D>>
HWY_INLINE void exp2_of_bounded(D d, V (&x)[count]) {
  using T = hn::TFromD<D>;
  using Constants = Exp2Constants<T>;
  constexpr int lowest = lowest_exponent<T, reach>;
  V f[count], p[count];
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, float>) {
    for (int i = 0; i < count; ++i) {
      f[i] = V{_mm512_reduce_ps(x[i].raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
      p[i] = hn::Set(d, Constants::above_floor[0]);
    }
    for (std::size_t term = 1; term < std::size(Constants::above_floor); ++term) {
      for (int i = 0; i < count; ++i) p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, Constants::above_floor[term]));
    }
    for (int i = 0; i < count; ++i) p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, 1.0f));
    for (int i = 0; i < count; ++i) {
      const auto counts = _mm512_cmp_ps_mask(x[i].raw, _mm512_set1_ps(lowest + 0.5f), _CMP_NLT_UQ);  // NaN, too
      x[i] = V{_mm512_maskz_scalef_ps(counts, p[i].raw, x[i].raw)};
    }
    return;
  }
#endif
  const hn::RebindToUnsigned<D> bits;
  constexpr T shift = Constants::whole - T(lowest);
  constexpr T factor = static_cast<T>(std::uint64_t{1} << (Constants::bias + lowest));
  V power[count];
  for (int i = 0; i < count; ++i) power[i] = hn::Add(x[i], hn::Set(d, shift));
  for (int i = 0; i < count; ++i) f[i] = hn::Round(x[i]);
  for (int i = 0; i < count; ++i) f[i] = hn::Sub(x[i], f[i]);
  for (int i = 0; i < count; ++i) p[i] = hn::Set(d, factor * Constants::polynomial[0]);
  for (std::size_t term = 1; term < std::size(Constants::polynomial); ++term) {
    for (int i = 0; i < count; ++i) p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, factor * Constants::polynomial[term]));
  }
  for (int i = 0; i < count; ++i) p[i] = hn::MulAdd(p[i], f[i], hn::Set(d, factor));
  for (int i = 0; i < count; ++i) {
    x[i] = hn::Mul(p[i], hn::BitCast(d, hn::ShiftLeft<Constants::fraction_bits>(hn::BitCast(bits, power[i]))));
  }
}
template <Reach reach = Reach::all, int count, class D, class V = hn::Vec<D>>
HWY_INLINE void exp2(D d, V (&x)[count]) {
  constexpr bool needs_bounds = HWY_TARGET != HWY_AVX3 || !std::is_same_v<hn::TFromD<D>, float>;
  for (int i = 0; i < count && needs_bounds; ++i) x[i] = bounded_for_exp2<reach>(d, x[i]);
  exp2_of_bounded<reach>(d, x);
}
template <Reach reach = Reach::all, class D, class V = hn::Vec<D>>
HWY_INLINE V exp2(D d, V x) {
  V one[1] = {x};
  exp2<reach>(d, one);
  return one[0];
}

// Constants of log2(x) in the format of T.
template <class T>
struct Log2Constants;
template <>
struct Log2Constants<float> {
  static constexpr int fraction_bits = 23;
  static constexpr std::uint32_t one = 0x3f800000, fraction = 0x7fffff;  // bits: of 1; all of a fraction
  static constexpr std::uint32_t least = 0x3f2aaaab;                     // bits of 2/3: the least m
  // 2^23 as bits, which turns an integer below it into a float; and as a float, with the exponent's bias.
  static constexpr std::uint32_t integer = 0x4b000000;
  static constexpr float shift = 8388608.0f + 127;
  // log2(1 + f) / f on [-1/3, 1/3], minimax for the relative error (3e-8).
  static constexpr float polynomial[] = {2.0278687e-1f,  -2.2222117e-1f, 2.0179914e-1f,  -2.3678652e-1f, 2.8871133e-1f,
                                         -3.6078957e-1f, 4.8089597e-1f,  -7.2134654e-1f, 1.4426950e0f};
};
template <>
struct Log2Constants<double> {
  static constexpr int fraction_bits = 52;
  static constexpr std::uint64_t one = 0x3ff0000000000000, fraction = 0xfffffffffffff;
  static constexpr std::uint64_t least = 0x3fe6a09e667f3bcd;  // bits of sqrt(1/2)
  static constexpr std::uint64_t integer = 0x4330000000000000;
  static constexpr double shift = 4503599627370496.0 + 1023;
  // 2 atanh(s) / (s ln(2)) by powers of s^2: 2 / ((2i + 1) ln(2)), whose first omitted term is below 3e-17 of the
  // whole.
  static constexpr double polynomial[] = {
      1.5186263588304878e-1, 1.6972882833987805e-1, 1.9235933878519512e-1, 2.2195308321368668e-1, 2.623081892525388e-1,
      3.205988979753252e-1,  4.121985831111324e-1,  5.7707801635558536e-1, 9.617966939259756e-1,  2.8853900817779268};
};

// log2(x). Relative error for normal x: 1.5e-7 (float; 1.9e-7 without fused multiply-add), 5e-16 (double); exact for
// powers of two. Of 0 it is -inf, of inf inf, of less than 0 NaN; NaN stays NaN. Of subnormal x it is within 2 of the
// least normal number's.
//
// x = 2^n m, m between 2/3 and 4/3 (float) or sqrt(1/2) and sqrt(2) (double), so that the sum n + log2(m) never
// cancels. With f = m - 1, log2(m) is f times a polynomial in f for float; for double, where that would be long, s
// times one in s^2, s = f / (2 + f).
//
// Several vectors at once for the same reason as in exp2.
template <int count, class D, class V = hn::Vec<D>>
HWY_INLINE void log2(D d, V (&x)[count]) {
  using T = hn::TFromD<D>;
  using Constants = Log2Constants<T>;
  const hn::RebindToUnsigned<D> bits;
  constexpr bool is_double = std::is_same_v<T, double>;
  V n[count], f[count], p[count], argument[count];
  for (int i = 0; i < count; ++i) {
    const auto moved = hn::Add(hn::BitCast(bits, x[i]), hn::Set(bits, Constants::one - Constants::least));
    const auto exponent = hn::ShiftRight<Constants::fraction_bits>(moved);
    n[i] = hn::Sub(hn::BitCast(d, hn::Or(exponent, hn::Set(bits, Constants::integer))), hn::Set(d, Constants::shift));
    const auto m = hn::Add(hn::And(moved, hn::Set(bits, Constants::fraction)), hn::Set(bits, Constants::least));
    f[i] = hn::Sub(hn::BitCast(d, m), hn::Set(d, T(1)));
  }
  for (int i = 0; i < count; ++i) {
    if constexpr (is_double) f[i] = hn::Div(f[i], hn::Add(f[i], hn::Set(d, T(2))));
    argument[i] = is_double ? hn::Mul(f[i], f[i]) : f[i];
    p[i] = hn::Set(d, Constants::polynomial[0]);
  }
  for (std::size_t term = 1; term < std::size(Constants::polynomial); ++term) {
    for (int i = 0; i < count; ++i) p[i] = hn::MulAdd(p[i], argument[i], hn::Set(d, Constants::polynomial[term]));
  }
  const auto zero = hn::Zero(d), infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  for (int i = 0; i < count; ++i) {
    const auto of_normal = hn::MulAdd(p[i], f[i], n[i]);
    const auto of_positive = hn::IfThenElse(hn::Lt(x[i], infinity), of_normal, x[i]);  // and of NaN
    const auto of_others = hn::IfThenElse(hn::Eq(x[i], zero), hn::Neg(infinity), hn::NaN(d));
    x[i] = hn::IfThenElse(hn::Le(x[i], zero), of_others, of_positive);
  }
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log2(D d, V x) {
  V one[1] = {x};
  log2<1>(d, one);
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
  for (int i = 0; i < count; ++i) power[i] = hn::Add(power[i], hn::Set(d, Constants::whole + T(Constants::bias)));
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

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
