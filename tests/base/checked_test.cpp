// tests/base/checked_test.cpp: arithmetic on sizes.
#include "base/checked.h"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "support/errors.h"

namespace qkv::test {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

TEST(Checked, ResultsThatFitAreExact) {
  EXPECT_EQ(checked_mul(3037000499, 3037000499, "size"), 9223372030926249001);
  EXPECT_EQ(checked_mul(-2, largest / 2, "size"), -largest + 1);
  EXPECT_EQ(checked_mul(0, largest, "size"), 0);
  EXPECT_EQ(checked_add(largest - 1, 1, "size"), largest);
  EXPECT_EQ(checked_add(-5, 3, "size"), -2);
}

TEST(Checked, AProductThatOverflowsIsRefusedWithItsFactors) {
  expect_error<ShapeError>([] { checked_mul(largest, 2, "the size of q"); },
                           {"the size of q", "9223372036854775807 * 2", "does not fit in 64 bits"});
}

TEST(Checked, ASumThatOverflowsIsRefusedWithItsTerms) {
  expect_error<ShapeError>([] { checked_add(largest, 1, "the length"); },
                           {"the length", "9223372036854775807 + 1", "does not fit in 64 bits"});
}

}  // namespace
}  // namespace qkv::test
