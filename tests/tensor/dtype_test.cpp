// tests/tensor/dtype_test.cpp: element types and half precision.
#include <qkv/dtype.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/half.h"

namespace qkv::test {
namespace {

TEST(Dtype, SizesAndNamesAreThoseOfTheElements) {
  EXPECT_EQ(size_of(Dtype::float32), sizeof(float));
  EXPECT_EQ(size_of(Dtype::float64), sizeof(double));
  EXPECT_EQ(size_of(Dtype::float16), sizeof(Float16));
  EXPECT_EQ(size_of(Dtype::bfloat16), sizeof(BFloat16));
  EXPECT_EQ(size_of(Dtype::boolean), sizeof(bool));
  EXPECT_EQ(size_of(Dtype::int32), sizeof(std::int32_t));
  EXPECT_EQ(size_of(Dtype::int64), sizeof(std::int64_t));
  EXPECT_EQ(name_of(Dtype::float32), "float32");
  EXPECT_EQ(name_of(Dtype::float64), "float64");
  EXPECT_EQ(name_of(Dtype::float16), "float16");
  EXPECT_EQ(name_of(Dtype::bfloat16), "bfloat16");
  EXPECT_EQ(name_of(Dtype::boolean), "boolean");
  EXPECT_EQ(name_of(Dtype::int32), "int32");
  EXPECT_EQ(name_of(Dtype::int64), "int64");
  EXPECT_TRUE(is_floating(Dtype::bfloat16));
  EXPECT_FALSE(is_floating(Dtype::boolean));
}

// The value of a half by the definition of the format.
double value_by_definition(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const double fraction = std::ldexp(bits & ((1 << fraction_bits) - 1), -fraction_bits);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, exponent - bias);
}

struct Format {
  int exponent_bits, fraction_bits;
  std::uint16_t infinity;
  float (*widen)(std::uint16_t bits);
  std::uint16_t (*narrow)(float value);
  std::uint16_t (*narrow_double)(double value);
};

template <class Half, Half (*from_double)(double)>
Format format(int exponent_bits, int fraction_bits, std::uint16_t infinity) {
  return {exponent_bits,
          fraction_bits,
          infinity,
          [](std::uint16_t bits) {
            Half half;
            half.bits = bits;
            return static_cast<float>(half);
          },
          [](float value) { return Half(value).bits; },
          [](double value) { return from_double(value).bits; }};
}

class HalfPrecision : public testing::TestWithParam<Format> {
 protected:
  const Format format = GetParam();

  // All finite non-negative values, rising.
  std::vector<double> values() const {
    std::vector<double> result;
    for (std::uint16_t bits = 0; bits < format.infinity; ++bits) {
      result.push_back(value_by_definition(bits, format.exponent_bits, format.fraction_bits));
    }
    return result;
  }
};

TEST_P(HalfPrecision, EveryPatternWidensToItsValueAndComesBack) {
  for (std::uint32_t pattern = 0; pattern < 65536; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const float wide = format.widen(bits);
    const int magnitude = bits & 0x7fff;
    if (magnitude > format.infinity) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_TRUE(std::isnan(format.widen(format.narrow(wide))));
      continue;
    }
    const double expected = magnitude == format.infinity
                                ? std::copysign(std::numeric_limits<double>::infinity(), bits & 0x8000 ? -1.0 : 1.0)
                                : value_by_definition(bits, format.exponent_bits, format.fraction_bits);
    ASSERT_EQ(double{wide}, expected) << pattern;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0);
    ASSERT_EQ(format.narrow(wide), bits);
    ASSERT_EQ(format.narrow_double(wide), bits);
  }
}

TEST_P(HalfPrecision, BetweenNeighboursTheNearestIsTakenAndTheEvenOneAtATie) {
  const std::vector<double> all = values();
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    const double middle = (all[i] + all[i + 1]) / 2;
    const auto lower = static_cast<std::uint16_t>(i), upper = static_cast<std::uint16_t>(i + 1);
    const std::uint16_t even = i % 2 == 0 ? lower : upper;
    // The middle of two halves is a float.
    ASSERT_EQ(format.narrow(static_cast<float>(middle)), even) << i;
    ASSERT_EQ(format.narrow(-static_cast<float>(middle)), even | 0x8000) << i;
    ASSERT_EQ(format.narrow(std::nextafter(static_cast<float>(middle), -1.0f)), lower) << i;
    ASSERT_EQ(format.narrow(std::nextafter(static_cast<float>(middle), std::numeric_limits<float>::infinity())), upper)
        << i;
    // From double there is one rounding: by way of float the last two would become ties.
    ASSERT_EQ(format.narrow_double(middle), even) << i;
    ASSERT_EQ(format.narrow_double(std::nextafter(middle, -1.0)), lower) << i;
    ASSERT_EQ(format.narrow_double(std::nextafter(middle, std::numeric_limits<double>::infinity())), upper) << i;
  }
}

TEST_P(HalfPrecision, WhatIsTooLargeBecomesInfinity) {
  const double largest = values().back();
  const double step = largest - values()[values().size() - 2];
  EXPECT_EQ(format.narrow_double(std::nextafter(largest + step / 2, 0.0)), format.infinity - 1);
  EXPECT_EQ(format.narrow_double(largest + step / 2), format.infinity);
  EXPECT_EQ(format.narrow_double(-1e300), format.infinity | 0x8000);
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::max()), format.infinity);
  EXPECT_EQ(format.narrow(-std::numeric_limits<float>::infinity()), format.infinity | 0x8000);
}

TEST_P(HalfPrecision, WhatIsTooSmallBecomesZeroAndKeepsItsSign) {
  const double smallest = values()[1];
  EXPECT_EQ(format.narrow_double(smallest / 2), 0);
  EXPECT_EQ(format.narrow_double(std::nextafter(smallest / 2, 1.0)), 1);
  EXPECT_EQ(format.narrow_double(-1e-300), 0x8000);
  EXPECT_EQ(format.narrow_double(-std::numeric_limits<double>::denorm_min()), 0x8000);
  EXPECT_EQ(format.narrow(-0.0f), 0x8000);
}

TEST_P(HalfPrecision, ANanStaysOneEvenIfItsBitsAreAllLow) {
  EXPECT_TRUE(std::isnan(format.widen(format.narrow(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(format.widen(format.narrow_double(std::bit_cast<double>(0xfff0000000000001u)))));
}

INSTANTIATE_TEST_SUITE_P(Formats, HalfPrecision,
                         testing::Values(format<Float16, to_float16>(5, 10, 0x7c00),
                                         format<BFloat16, to_bfloat16>(8, 7, 0x7f80)),
                         [](const auto& instance) { return instance.index == 0 ? "float16" : "bfloat16"; });

}  // namespace
}  // namespace qkv::test
