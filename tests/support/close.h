// support/close.h: when a computed result counts as right.
#pragma once

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/tensor.h>

namespace qkv::test {

// What a result is measured by. Its tolerance is not a guess: it is a multiple of the largest error that a plain
// float32 computation makes on the same data.
struct Yardstick {
  std::vector<double> exact;  // the naive result in double precision
  std::vector<float> plain;   // the same in plain float32
  // The size of the numbers that are rounded on the way. One such rounding is always allowed: on a handful of elements
  // the plain computation may happen to be exact.
  double magnitude = 1;
};

// Every element within `multiple` times the plain error, plus one rounding of `magnitude`; in float64 the same in units
// of its own, smaller epsilon; in half precision plus half a unit in the last place of the storage. NaN where it
// should be NaN and nowhere else; infinities equal.
testing::AssertionResult is_close(const View& got, const Yardstick& yardstick, double multiple = 4);

// The same bytes in the same shape and dtype. Both dense.
testing::AssertionResult same_bits(const View& a, const View& b);

// How many representable numbers lie between two finite ones of the same dtype; 0 for equal ones, +0 and -0 included.
std::int64_t ulp_distance(float a, float b);
std::int64_t ulp_distance(Float16 a, Float16 b);

// The largest absolute finite element; 0 where there is none.
double largest_magnitude(const View& view);

}  // namespace qkv::test
