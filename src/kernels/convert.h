// kernels/convert.h: rows of half precision to and from float.
#pragma once

#include <cstdint>

namespace qkv::kernels {

struct ConvertKernels {
  void (*from_float16)(const std::uint16_t* source, std::int64_t count, float* target);
  void (*from_bfloat16)(const std::uint16_t* source, std::int64_t count, float* target);
  void (*to_float16)(const float* source, std::int64_t count, std::uint16_t* target);
  void (*to_bfloat16)(const float* source, std::int64_t count, std::uint16_t* target);
};
const ConvertKernels& convert_kernels();

}  // namespace qkv::kernels
