// base/half.h: half precision in software, on bits: float16 (IEEE binary16) and bfloat16 (the upper half of a float).
#pragma once

#include <bit>
#include <cstdint>

namespace qkv {

inline float float_of_float16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fff) << 13;
  if (magnitude >= 0x0f800000) return std::bit_cast<float>(sign | 0x70000000 | magnitude);  // infinity, NaN
  constexpr std::uint32_t rebias = (127 - 15) << 23;
  if (magnitude >= 0x00800000) return std::bit_cast<float>(sign | (magnitude + rebias));
  // A subnormal half is a normal float: no step may pass through a subnormal float, which the processor might flush.
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(half & 0x3ff) * 0x1p-24f));
}

// Nearest, ties to even; NaN becomes quiet.
inline std::uint16_t float16_of_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000) {
    half = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x47800000) {  // 2^16 and more
    half = 0x7c00;
  } else if (magnitude < 0x38800000) {  // below 2^-14: a float near 1/2 has the subnormals' spacing, so adding rounds
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  } else {
    half = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

inline float float_of_bfloat16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

// Nearest, ties to even; NaN becomes quiet.
inline std::uint16_t bfloat16_of_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace qkv
