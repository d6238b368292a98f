// qkv/dtype.h: the element types of tensors, and the two half-precision storage types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <qkv/export.h>

namespace qkv {

// float32 and float64 are computed in; float16 and bfloat16 are storage only, computed in float32.
// boolean is one byte, 0 or 1; it and the integers serve masks and lengths.
enum class Dtype : std::uint8_t { float32, float64, float16, bfloat16, boolean, int32, int64 };

QKV_API std::size_t size_of(Dtype dtype);
QKV_API std::string_view name_of(Dtype dtype);  // "float32"

constexpr bool is_floating(Dtype dtype) { return dtype <= Dtype::bfloat16; }

// IEEE binary16. Conversion rounds to nearest even; NaN stays NaN.
struct QKV_API Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

// The upper half of a float32. Conversion rounds to nearest even; NaN stays NaN.
struct QKV_API BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const;
};

// The Dtype of a C++ element type: dtype_of<float> is Dtype::float32.
template <class T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
  static constexpr Dtype value = Dtype::float32;
};
template <>
struct DtypeOf<double> {
  static constexpr Dtype value = Dtype::float64;
};
template <>
struct DtypeOf<Float16> {
  static constexpr Dtype value = Dtype::float16;
};
template <>
struct DtypeOf<BFloat16> {
  static constexpr Dtype value = Dtype::bfloat16;
};
template <>
struct DtypeOf<bool> {
  static constexpr Dtype value = Dtype::boolean;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr Dtype value = Dtype::int32;
};
template <>
struct DtypeOf<std::int64_t> {
  static constexpr Dtype value = Dtype::int64;
};
template <class T>
inline constexpr Dtype dtype_of = DtypeOf<T>::value;

}  // namespace qkv
