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

#include <cstddef>
#include <cstdint>
#include <iterator>
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

// Constants of the format of T, for exp2.
template <class T>
struct Exp2Format;
template <>
struct Exp2Format<float> {
  static constexpr int fraction_bits = 23;
  static constexpr float lowest = -127;             // the exponent that stands for 0
  static constexpr float shift = 12582912.0f + 127;  // 1.5 * 2^23: a sum with it has no fraction; and the bias
  // Minimax for the relative error on [-1/2, 1/2], the constant term being 1. One degree less would have 9e-8 instead
  // of 2e-9, as much as everything else together.
  static constexpr float polynomial[] = {1.5355012e-4f, 1.3398891e-3f, 9.618431e-3f, 5.5503324e-2f, 2.4022648e-1f, 6.931472e-1f};
};
template <>
struct Exp2Format<double> {
  static constexpr int fraction_bits = 52;
  static constexpr double lowest = -1023;
  static constexpr double shift = 6755399441055744.0 + 1023;
  // The Taylor series: ln(2)^i / i!, whose first omitted term is below 5e-18 on [-1/2, 1/2].
  static constexpr double polynomial[] = {1.3691488853904129e-12, 2.5678435993488206e-11, 4.4455382718708116e-10,
                                          7.0549116208011234e-9,  1.0178086009239699e-7,  1.3215486790144309e-6,
                                          1.5252733804059840e-5,  1.5403530393381609e-4,  1.3333558146428443e-3,
                                          9.6181291076284772e-3,  5.5504108664821580e-2,  2.4022650695910071e-1,
                                          6.9314718055994531e-1};
};

// 2^(x - reference) for an integer reference, |reference| <= max_reference, and x - reference <= 127: relative error 8e-8
// (float), 3e-16 (double) where the result is normal. Below the least normal number the result is exactly 0, for -inf
// too; NaN, of any payload, stays NaN.
//
// x = n + f with |f| <= 1/2, exactly. Adding `shift` leaves n - reference plus the exponent's bias in the low bits of the
// sum; moved to the exponent's place these are 2^(n - reference), and 0 for the least. That x - reference is never formed
// saves its rounding, which is as large as that of the whole dot product. The product with the power of two, rather than
// an integer addition to the exponent, keeps NaN and gives exact zeros; it costs the same.
template <class D>
class Exp2 {
 public:
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  static constexpr T max_reference = T(1 << 20);

  HWY_INLINE Exp2(D d, V reference)
      : lowest_(hn::Add(reference, hn::Set(d, Format::lowest))), shift_(hn::Sub(hn::Set(d, Format::shift), reference)) {}

  HWY_INLINE V operator()(D d, V x) const {
    x = at_least(d, x, lowest_);
    const V sum = hn::Add(x, shift_);
    const V f = hn::Sub(x, hn::Sub(sum, shift_));
    V p = hn::Set(d, Format::polynomial[0]);
    for (std::size_t i = 1; i < std::size(Format::polynomial); ++i) {
      p = hn::MulAdd(p, f, hn::Set(d, Format::polynomial[i]));
    }
    p = hn::MulAdd(p, f, hn::Set(d, T(1)));
    const hn::RebindToUnsigned<D> bits;
    return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<Format::fraction_bits>(hn::BitCast(bits, sum))));
  }

 private:
  using Format = Exp2Format<T>;
  V lowest_, shift_;
};

// 2^x for x <= 127; see above.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2(D d, V x) {
  return Exp2<D>(d, hn::Zero(d))(d, x);
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
