// tensor/dtype.cpp: sizes and names of element types, and the conversions of half precision.
#include <qkv/dtype.h>

#include <algorithm>
#include <bit>

#include "base/half.h"
#include "tensor/half.h"

namespace qkv {

std::size_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return 4;
    case Dtype::float64:
      return 8;
    case Dtype::float16:
    case Dtype::bfloat16:
      return 2;
    case Dtype::boolean:
      return 1;
    case Dtype::int32:
      return 4;
    case Dtype::int64:
      return 8;
  }
  __builtin_unreachable();
}

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return "float32";
    case Dtype::float64:
      return "float64";
    case Dtype::float16:
      return "float16";
    case Dtype::bfloat16:
      return "bfloat16";
    case Dtype::boolean:
      return "boolean";
    case Dtype::int32:
      return "int32";
    case Dtype::int64:
      return "int64";
  }
  __builtin_unreachable();
}

namespace {

// The bits of `value` in a format with so many bits of exponent and fraction, rounded to nearest, ties to even, once.
template <int exponent_bits, int fraction_bits>
std::uint16_t narrowed(double value) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr int lowest = 1 - bias;  // the exponent of the smallest normal number
  constexpr std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << fraction_bits;

  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t sign = bits >> 63 << (exponent_bits + fraction_bits);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);

  std::uint64_t magnitude = 0;
  if (exponent == 1024 && fraction != 0) {  // NaN: made quiet, the rest of its upper bits kept
    magnitude = infinity | std::uint64_t{1} << (fraction_bits - 1) | fraction >> (52 - fraction_bits);
  } else if (exponent > bias) {
    magnitude = infinity;
  } else {
    // A subnormal drops more bits. 54 and more leave less than half of the smallest subnormal: zero.
    const int dropped = 52 - fraction_bits + std::max(0, lowest - exponent);
    if (dropped < 54) {
      const std::uint64_t significand = fraction | std::uint64_t{1} << 52;
      const std::uint64_t rest = significand & ((std::uint64_t{1} << dropped) - 1);
      const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
      magnitude = significand >> dropped;
      if (rest > half || (rest == half && (magnitude & 1) != 0)) ++magnitude;
      // The leading one adds 1 to the exponent's field; a carry from rounding does too, up to infinity.
      magnitude += static_cast<std::uint64_t>(std::max(exponent, lowest) - lowest) << fraction_bits;
    }
  }
  return static_cast<std::uint16_t>(sign | magnitude);
}

}  // namespace

Float16 to_float16(double value) {
  Float16 half;
  half.bits = narrowed<5, 10>(value);
  return half;
}

BFloat16 to_bfloat16(double value) {
  BFloat16 half;
  half.bits = narrowed<8, 7>(value);
  return half;
}

Float16::Float16(float value) : bits(float16_of_float(value)) {}
Float16::operator float() const { return float_of_float16(bits); }

BFloat16::BFloat16(float value) : bits(bfloat16_of_float(value)) {}
BFloat16::operator float() const { return float_of_bfloat16(bits); }

}  // namespace qkv
