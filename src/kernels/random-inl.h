// kernels/random-inl.h: random bits on vectors.
//
// Compiled once per instruction set; see Highway's foreach_target.
#if defined(QKV_KERNELS_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_RANDOM_INL_H_
#undef QKV_KERNELS_RANDOM_INL_H_
#else
#define QKV_KERNELS_RANDOM_INL_H_
#endif

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// random_bits of base/random.h on vectors, where x is counter * random_step + the key's lower half.
inline constexpr std::uint32_t random_step = 0x9e3779b9u;
template <class D, class V = hn::Vec<D>>
HWY_INLINE V random_bits(D d, V x, V upper) {
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, 0x7feb352du));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, 0x846ca68bu));
  x = hn::Add(hn::Xor(x, hn::ShiftRight<16>(x)), upper);
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(d, 0x21f0aaadu));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(d, 0x735a2d97u));
  return hn::Xor(x, hn::ShiftRight<15>(x));
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
