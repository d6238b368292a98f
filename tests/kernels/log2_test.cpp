// kernels/log2_test.cpp: log2 on vectors: how accurate it is, and what it makes of what is no positive number.
#pragma GCC diagnostic ignored "-Wsign-conversion"  // of the kernels' headers: g++ minds extents of arrays that are int
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/log2_test.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/isa.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// x[i] = log2(x[i]), count a multiple of 16.
template <class T>
void log2_all(T* x, std::size_t count) {
  const Tag<T> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) hn::StoreU(log2(d, hn::LoadU(d, x + i)), d, x + i);
}

template <class T>
struct Log2 {
  void (*all)(T*, std::size_t);
};
template <class T>
constexpr Log2<T> log2_of_target = {log2_all<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/vector_function.h"
#include "support/isas.h"
#include "support/random.h"

namespace qkv::kernels {
namespace {

template <class T>
std::vector<T> log2_of(const std::vector<T>& x) {
  return apply<T>(QKV_PICK(log2_of_target<T>.all), x);
}

// The largest relative error, against long double.
template <class T>
double largest_error(const std::vector<T>& x) {
  const auto y = log2_of(x);
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double exact = std::log2(static_cast<long double>(x[i]));
    const auto error = static_cast<double>(std::abs(static_cast<long double>(y[i]) - exact) / std::abs(exact));
    if (exact == 0) {
      EXPECT_EQ(y[i], 0);
    } else if (!(error <= largest)) {
      largest = error;  // NaN is the largest of all
    }
  }
  return largest;
}

// As vector-inl.h states; the baseline has no fused multiply-add.
template <class T>
double stated() {
  if (sizeof(T) == sizeof(double)) return 5e-16;
  return current_isa() == Isa::baseline ? 1.9e-7 : 1.5e-7;
}

template <class T>
class Log2Of : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Log2Of, Types);

TYPED_TEST(Log2Of, HasTheStatedErrorForEveryNormalNumber) {
  test::on_every_isa([] {
    using Limits = std::numeric_limits<TypeParam>;
    test::Random random(1);
    std::vector<TypeParam> everywhere = {Limits::min(), Limits::max()}, around_one;
    for (int i = 0; i < 400'000; ++i) {
      const double exponent = (Limits::min_exponent - 1) + random.uniform() * (1 - 2.0 * Limits::min_exponent);
      const auto x = static_cast<TypeParam>(std::exp2(exponent));
      if (std::isnormal(x)) everywhere.push_back(x);
      around_one.push_back(static_cast<TypeParam>(0.4 + 1.8 * random.uniform()));
    }
    EXPECT_LE(largest_error(everywhere), stated<TypeParam>());
    EXPECT_LE(largest_error(around_one), stated<TypeParam>());
  });
}

TYPED_TEST(Log2Of, HasTheStatedErrorNextToOne) {
  test::on_every_isa([] {
    test::Random random(1);
    std::vector<TypeParam> x = {TypeParam(1), std::nextafter(TypeParam(1), TypeParam(0)),
                                std::nextafter(TypeParam(1), TypeParam(2))};
    for (int i = 0; i < 400'000; ++i) {
      const double off = std::exp2(-std::numeric_limits<TypeParam>::digits * random.uniform());
      x.push_back(static_cast<TypeParam>(1 + off));
      x.push_back(static_cast<TypeParam>(1 - off / 2));
    }
    EXPECT_LE(largest_error(x), stated<TypeParam>());
  });
}

TYPED_TEST(Log2Of, PowersOfTwoAreExact) {
  test::on_every_isa([] {
    using Limits = std::numeric_limits<TypeParam>;
    std::vector<TypeParam> powers;
    for (int n = Limits::min_exponent - 1; n < Limits::max_exponent; ++n) powers.push_back(std::ldexp(TypeParam(1), n));
    const auto y = log2_of(powers);
    for (std::size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], Limits::min_exponent - 1 + static_cast<int>(i));
  });
}

TYPED_TEST(Log2Of, WhatIsNoPositiveNumber) {
  test::on_every_isa([] {
    using Limits = std::numeric_limits<TypeParam>;
    const TypeParam infinity = Limits::infinity();
    for (const TypeParam y : log2_of<TypeParam>({0, -TypeParam(0)})) EXPECT_EQ(y, -infinity);
    EXPECT_EQ(log2_of<TypeParam>({infinity})[0], infinity);
    for (const TypeParam y :
         log2_of<TypeParam>({-1, -infinity, -Limits::min(), -Limits::denorm_min(), -Limits::max(), Limits::quiet_NaN(),
                             -Limits::quiet_NaN(), Limits::signaling_NaN(), -Limits::signaling_NaN()})) {
      EXPECT_TRUE(std::isnan(y)) << y;
    }
  });
}

TYPED_TEST(Log2Of, SubnormalNumbersAreNextToTheLeastNormalOne) {
  test::on_every_isa([] {
    using Limits = std::numeric_limits<TypeParam>;
    for (const TypeParam y : log2_of<TypeParam>({Limits::denorm_min(), Limits::min() / 2, Limits::min() / 7})) {
      EXPECT_LE(std::abs(y - (Limits::min_exponent - 1)), 2);
    }
  });
}

}  // namespace
}  // namespace qkv::kernels
#endif
