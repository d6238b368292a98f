// kernels/convert.cpp: rows of half precision to and from float.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "base/half.h"
#include "kernels/convert.h"
#include "kernels/half-inl.h"
#include "kernels/isa.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

void from_float16(const std::uint16_t* source, std::int64_t count, float* target) {
  std::int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const Tag<float> d;
  for (; i + lanes_of<float> <= count; i += lanes_of<float>) {
    hn::StoreU(load_widened<float>(reinterpret_cast<const hwy::float16_t*>(source + i)), d, target + i);
  }
#endif
  for (; i < count; ++i) target[i] = float_of_float16(source[i]);
}

void from_bfloat16(const std::uint16_t* source, std::int64_t count, float* target) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = float_of_bfloat16(source[i]);
}

void to_float16(const float* source, std::int64_t count, std::uint16_t* target) {
  std::int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, Tag<float>> half;
  for (; i + lanes_of<float> <= count; i += lanes_of<float>) {
    hn::StoreU(hn::DemoteTo(half, hn::LoadU(Tag<float>(), source + i)), half,
               reinterpret_cast<hwy::float16_t*>(target + i));
  }
#endif
  for (; i < count; ++i) target[i] = float16_of_float(source[i]);
}

void to_bfloat16(const float* source, std::int64_t count, std::uint16_t* target) {
  for (std::int64_t i = 0; i < count; ++i) target[i] = bfloat16_of_float(source[i]);
}

constexpr ConvertKernels convert_table = {from_float16, from_bfloat16, to_float16, to_bfloat16};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

const ConvertKernels& convert_kernels() { return QKV_PICK(convert_table); }

}  // namespace qkv::kernels
#endif
