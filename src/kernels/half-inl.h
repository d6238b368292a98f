// kernels/half-inl.h: loads that widen storage to what is computed in.
#if defined(QKV_KERNELS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_HALF_INL_H_
#undef QKV_KERNELS_HALF_INL_H_
#else
#define QKV_KERNELS_HALF_INL_H_
#endif

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <hwy/highway.h>

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// A vector's worth of elements as T, from T itself, float16 or bfloat16.
template <class T>
HWY_INLINE Vec<T> load_widened(const T* at) {
  return hn::LoadU(Tag<T>(), at);
}
template <class T, class Half>
requires(std::is_same_v<Half, hwy::float16_t> ||
         std::is_same_v<Half, hwy::bfloat16_t>) HWY_INLINE Vec<T> load_widened(const Half* at) {
  const hn::Rebind<Half, Tag<T>> half;
  return hn::PromoteTo(Tag<T>(), hn::LoadU(half, at));
}

// The first `count` elements at a place, at most a vector, with zeros behind; nothing beyond them is read.
template <class T, class Stored>
HWY_INLINE Vec<T> load_some(const Stored* at, int count) {
  if (count >= lanes_of<T>) return load_widened<T>(at);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, Stored>) {
    const Tag<T> d;
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, at);
  }
#endif
  HWY_ALIGN Stored padded[static_cast<std::size_t>(lanes_of<T>)] = {};
  std::memcpy(padded, at, static_cast<std::size_t>(count) * sizeof(Stored));
  return load_widened<T>(padded);
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
