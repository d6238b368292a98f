// kernels/functions_test.cpp: 2^x and tanh on vectors: how accurate they are, and what they make of what is no
// number.
#pragma GCC diagnostic ignored "-Wsign-conversion"  // of the kernels' headers: g++ minds extents of arrays that are int
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/functions_test.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/isa.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// x[i] = f(x[i]), count a multiple of 16.
template <Reach reach, class T>
void exp2_all(T* x, std::size_t count) {
  const Tag<T> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) hn::StoreU(exp2<reach>(d, hn::LoadU(d, x + i)), d, x + i);
}
template <class T>
void tanh_all(T* x, std::size_t count) {
  const Tag<T> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) hn::StoreU(tanh(d, hn::LoadU(d, x + i)), d, x + i);
}

// Four at once, as scores use it.
template <class T>
void tanh_by_fours(T* x, std::size_t count) {
  const Tag<T> d;
  const std::size_t L = hn::Lanes(d);
  for (std::size_t i = 0; i + 4 * L <= count; i += 4 * L) {
    Vec<T> four[4];
    for (std::size_t v = 0; v < 4; ++v) four[v] = hn::LoadU(d, x + i + v * L);
    tanh(d, four);
    for (std::size_t v = 0; v < 4; ++v) hn::StoreU(four[v], d, x + i + v * L);
  }
}

template <class T>
struct Functions {
  void (*exp2)(T*, std::size_t);
  void (*exp2_for_weights)(T*, std::size_t);
  void (*tanh)(T*, std::size_t);
  void (*tanh_by_fours)(T*, std::size_t);
};
template <class T>
constexpr Functions<T> functions = {exp2_all<Reach::all, T>, exp2_all<Reach::weights, T>, tanh_all<T>,
                                    tanh_by_fours<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <bit>
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
std::vector<T> exp2_of(const std::vector<T>& x) {
  return apply<T>(QKV_PICK(functions<T>.exp2), x);
}
template <class T>
std::vector<T> tanh_of(const std::vector<T>& x) {
  return apply<T>(QKV_PICK(functions<T>.tanh), x);
}
// Numbers from low to high: evenly spaced ones, and as many whose exponents are evenly spaced, of both signs, so that
// the neighbourhood of 0 is not missed.
template <class T>
std::vector<T> sample(double low, double high) {
  constexpr int count = 400'000;
  std::vector<T> x;
  test::Random random(1);
  for (int i = 0; i < count; ++i) x.push_back(static_cast<T>(low + (high - low) * random.uniform()));
  for (int i = 0; i < count; ++i) {
    const double share = std::exp2(-40 * random.uniform());
    x.push_back(static_cast<T>(share * (random.chance(0.5) ? high : low)));
  }
  return x;
}

// How good a function must be: relative error at most fixed + growing * |x|. As vector-inl.h and docs/numerics.md
// state.
struct Bound {
  double fixed, growing;
};
template <class T>
struct Stated;
template <>
struct Stated<float> {
  static constexpr Bound exp2 = {1.7e-7, 0}, exp2_baseline = {2.2e-7, 0}, tanh = {3e-7, 0};
  static constexpr double least = -125.5, most = 127;  // 2^x is 0 below
};
template <>
struct Stated<double> {
  static constexpr Bound exp2 = {3e-16, 0}, exp2_baseline = {3e-16, 0}, tanh = {6e-16, 0};
  static constexpr double least = -1021.5, most = 1023;
};

// The largest error as a multiple of what is allowed, against a function of long double, which is exact enough for both
// types.
template <class T, class Exact>
double share_of_bound(const std::vector<T>& x, const std::vector<T>& y, Bound bound, Exact exact) {
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<long double>(x[i]);
    const long double e = exact(at), error = std::abs(static_cast<long double>(y[i]) - e) / (e == 0 ? 1 : std::abs(e));
    const auto share = static_cast<double>(error) / (bound.fixed + bound.growing * static_cast<double>(std::abs(at)));
    if (!(share <= largest)) largest = share;  // NaN is the largest of all
  }
  return largest;
}

template <class T>
class FunctionsOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(FunctionsOf, Types);

TYPED_TEST(FunctionsOf, Exp2HasTheStatedErrorWhereItsResultIsNormal) {
  test::on_every_isa([] {
    using S = Stated<TypeParam>;
    const auto exact = [](long double v) { return std::exp2(v); };
    const Bound bound = current_isa() == Isa::baseline ? S::exp2_baseline : S::exp2;
    const auto everywhere = sample<TypeParam>(S::least, S::most), close = sample<TypeParam>(-1, 1);
    EXPECT_LE(share_of_bound(everywhere, exp2_of(everywhere), bound, exact), 1);
    EXPECT_LE(share_of_bound(close, exp2_of(close), bound, exact), 1);
  });
}

TYPED_TEST(FunctionsOf, TanhHasTheStatedError) {
  test::on_every_isa([] {
    const auto exact = [](long double v) { return std::tanh(v); };
    for (const double range : {1.0, 30.0}) {
      const auto x = sample<TypeParam>(-range, range);
      EXPECT_LE(share_of_bound(x, tanh_of(x), Stated<TypeParam>::tanh, exact), 1);
    }
  });
}

TYPED_TEST(FunctionsOf, TanhOfFourVectorsIsThatOfOneAfterTheOther) {
  test::on_every_isa([] {
    const auto x = sample<TypeParam>(-30, 30);
    const auto fours = apply<TypeParam>(QKV_PICK(functions<TypeParam>.tanh_by_fours), x), ones = tanh_of(x);
    const std::size_t whole = x.size() / 64 * 64;
    for (std::size_t i = 0; i < whole; ++i) ASSERT_EQ(fours[i], ones[i]) << x[i];
  });
}

TYPED_TEST(FunctionsOf, Exp2ForWeightsIsTheSameButEndsEarlier) {
  test::on_every_isa([] {
    using T = TypeParam;
    const double least = sizeof(T) == sizeof(float) ? -99.5 : Stated<T>::least;
    const auto exact = [](long double v) { return std::exp2(v); };
    const Bound bound = current_isa() == Isa::baseline ? Stated<T>::exp2_baseline : Stated<T>::exp2;
    const auto weights_of = [](const std::vector<T>& x) {
      return apply<T>(QKV_PICK(functions<T>.exp2_for_weights), x);
    };
    const auto x = sample<T>(least, 1);
    EXPECT_LE(share_of_bound(x, weights_of(x), bound, exact), 1);
    const auto ends = static_cast<T>(least);
    const T lowest = -std::numeric_limits<T>::infinity();
    for (const T y : weights_of({std::nextafter(ends, lowest), ends - 1, ends * 2, ends * 1000, lowest})) {
      ASSERT_TRUE(y == 0 && !std::signbit(y)) << y;
    }
    for (const T y : weights_of({T(0), -T(0)})) ASSERT_EQ(y, 1);
    ASSERT_TRUE(std::isnan(weights_of({std::numeric_limits<T>::quiet_NaN()})[0]));
  });
}

TYPED_TEST(FunctionsOf, Exp2OfZeroIsExactlyOne) {
  test::on_every_isa([] {
    for (const TypeParam y : exp2_of<TypeParam>({TypeParam(0), -TypeParam(0)})) ASSERT_EQ(y, 1);
  });
}

TYPED_TEST(FunctionsOf, Exp2OfWhatIsFarBelowIsExactlyZero) {
  test::on_every_isa([] {
    using Limits = std::numeric_limits<TypeParam>;
    const auto least = static_cast<TypeParam>(Stated<TypeParam>::least);
    for (const TypeParam y : exp2_of<TypeParam>({std::nextafter(least, -Limits::max()), least - 1, least * 2,
                                                 least * 1000, -Limits::max(), -Limits::infinity()})) {
      ASSERT_TRUE(y == 0 && !std::signbit(y)) << y;
    }
    ASSERT_GE(exp2_of<TypeParam>({std::nextafter(least, TypeParam(0))})[0], Limits::min());
  });
}

template <class T>
std::vector<T> nans() {
  std::vector<T> all = {std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::quiet_NaN(),
                        std::numeric_limits<T>::signaling_NaN()};
  if constexpr (sizeof(T) == 4) {
    for (const std::uint32_t bits : {0x7fc00001u, 0xffc00000u, 0x7f800001u, 0x7fffffffu, 0xffffffffu, 0xff812345u}) {
      all.push_back(std::bit_cast<T>(bits));
    }
  } else {
    for (const std::uint64_t bits :
         {0x7ff8000000000001u, 0xfff8000000000000u, 0x7ff0000000000001u, 0xffffffffffffffffu}) {
      all.push_back(std::bit_cast<T>(bits));
    }
  }
  return all;
}

TYPED_TEST(FunctionsOf, NanOfAnyPayloadStaysNan) {
  test::on_every_isa([] {
    for (const TypeParam y : exp2_of(nans<TypeParam>())) ASSERT_TRUE(std::isnan(y));
    for (const TypeParam y : tanh_of(nans<TypeParam>())) ASSERT_TRUE(std::isnan(y));
  });
}

TYPED_TEST(FunctionsOf, TanhEndsAtOneAndIsOdd) {
  test::on_every_isa([] {
    using Limits = std::numeric_limits<TypeParam>;
    const auto ends =
        tanh_of<TypeParam>({Limits::infinity(), -Limits::infinity(), 1000, -1000, Limits::max(), -Limits::max()});
    for (std::size_t i = 0; i < ends.size(); ++i) ASSERT_EQ(ends[i], i % 2 == 0 ? 1 : -1);
    const auto zero = tanh_of<TypeParam>({TypeParam(0), -TypeParam(0)});
    EXPECT_EQ(zero[0], 0);
    EXPECT_EQ(zero[1], 0);
    auto x = sample<TypeParam>(-3, 3);
    const auto y = tanh_of(x);
    for (TypeParam& v : x) v = -v;
    const auto mirrored = tanh_of(x);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(mirrored[i], -y[i]) << x[i];
  });
}

}  // namespace
}  // namespace qkv::kernels
#endif
