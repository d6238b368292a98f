// kernels/distance_gradient_test.cpp: the derivatives of the kernels of the distance.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block_data.h"
#include "kernels/gradient_data.h"
#include "kernels/gradients.h"

namespace qkv::test {
namespace {

using kernels::DistanceKernel;

template <class T>
class DistanceGradientOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DistanceGradientOf, Types);

// A kernel, and what of it is differentiated. Only kernels that are 0 from u = 1 on are weighed by value.
struct Case {
  DistanceKernel kernel;
  bool by_value;
  bool compact() const { return kernel != DistanceKernel::gaussian && kernel != DistanceKernel::laplace; }
};
constexpr Case cases[] = {{DistanceKernel::gaussian, false},     {DistanceKernel::laplace, false},
                          {DistanceKernel::boxcar, false},       {DistanceKernel::boxcar, true},
                          {DistanceKernel::triangular, false},   {DistanceKernel::triangular, true},
                          {DistanceKernel::epanechnikov, false}, {DistanceKernel::epanechnikov, true}};

// By s = u^2, of exp(-s / 2), exp(-u), 1, 1 - u, 0.75 (1 - s) or of their logarithms.
long double derivative(const Case& of, long double s) {
  const long double u = std::sqrt(s);
  switch (of.kernel) {
    case DistanceKernel::gaussian:
      return -0.5L;
    case DistanceKernel::laplace:
      return s == 0 ? 0 : -1 / (2 * u);
    case DistanceKernel::boxcar:
      return 0;
    case DistanceKernel::triangular:
      return s == 0 ? 0 : -1 / (2 * u) / (of.by_value ? 1 : 1 - u);
    case DistanceKernel::epanechnikov:
      break;
  }
  return of.by_value ? -0.75L : -0.75L / (0.75L * (1 - s));
}

// Calls body(case) for each.
template <class Body>
void for_each_case(const Body& body) {
  for (const Case& of : cases) {
    SCOPED_TRACE("kernel " + std::to_string(static_cast<int>(of.kernel)) + (of.by_value ? " by value" : ""));
    body(of);
    if (testing::Test::HasFatalFailure()) return;
  }
}

template <class T>
void run(const Case& of, const Fenced<T>& slopes, const Fenced<T>& squares) {
  gradient_kernels<T>().distance({slopes.data(), squares.data(), slopes.size(), of.kernel, of.by_value});
}

// Root, difference, quotients and product are rounded once each, the root within 1 - u: 6 roundings at most, and one of
// u in units of 1 - u, which grows towards the edge of the support.
template <class T>
void expect_right(const Case& of, const std::vector<T>& squares_before, const std::vector<T>& slopes_before) {
  const int count = static_cast<int>(squares_before.size());
  const Fenced<T> slopes(count), squares(count);
  std::copy(squares_before.begin(), squares_before.end(), squares.data());
  std::copy(slopes_before.begin(), slopes_before.end(), slopes.data());
  run(of, slopes, squares);
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const long double s = squares_before[at], exact = derivative(of, s) * slopes_before[at];
    const bool near_edge = of.kernel == DistanceKernel::triangular && !of.by_value;
    const long double roundings = 6 + (near_edge ? std::sqrt(s) / (1 - std::sqrt(s)) : 0);
    ASSERT_LE(std::abs(slopes[i] - exact), std::abs(exact) * roundings * rounding<T>)
        << "place " << i << ", square " << s << ", slope " << slopes_before[at];
    ASSERT_TRUE(same_number(squares[i], squares_before[at])) << "a square changed";
  }
}

TYPED_TEST(DistanceGradientOf, EveryKernelIsRight) {
  on_every_isa([] {
    const int vector = kernels::panel_kernels<TypeParam>(current_isa()).vector;
    for (const int vectors : {0, 1, 2, 3, 17, 192}) {
      for_each_case([&](const Case& of) {
        Random random(1);
        std::vector<TypeParam> squares, slopes;
        for (int i = 0; i < vectors * vector; ++i) {
          const double u = random.chance(0.1) ? 0 : (of.compact() ? 0.99 : 10) * random.uniform();
          squares.push_back(static_cast<TypeParam>(u * u));
          slopes.push_back(static_cast<TypeParam>(random.normal()));
        }
        expect_right(of, squares, slopes);
      });
    }
  });
}

TYPED_TEST(DistanceGradientOf, IsRightCloseToTheKinks) {
  on_every_isa([] {
    for_each_case([](const Case& of) {
      const TypeParam least = std::numeric_limits<TypeParam>::min(), below_one = std::nextafter(TypeParam(1), least);
      std::vector<TypeParam> squares = {
          0, least, TypeParam(1e-30), TypeParam(1e-6), TypeParam(0.25), TypeParam(0.9), TypeParam(0.9999)};
      if (of.kernel != DistanceKernel::triangular || of.by_value) squares.push_back(below_one);
      squares.resize(16, TypeParam(0.5));
      expect_right(of, squares, std::vector<TypeParam>(16, TypeParam(-3)));
    });
  });
}

// What is excluded, or weighs nothing, has a slope of 0, and its distance may be anything.
TYPED_TEST(DistanceGradientOf, ASlopeOfZeroStaysZeroAtAnyDistance) {
  on_every_isa([] {
    for_each_case([](const Case& of) {
      const Fenced<TypeParam> slopes(16, TypeParam(0)), squares(16, TypeParam(2));
      const TypeParam distances[] = {0, 1, infinity<TypeParam>, nan<TypeParam>};
      for (int i = 0; i < 12; ++i) squares[i] = distances[i % 4];
      for (int i = 0; i < 16; i += 3) slopes[i] = -TypeParam(0);
      run(of, slopes, squares);
      for (int i = 0; i < 16; ++i) ASSERT_EQ(slopes[i], 0) << "square " << squares[i];
    });
  });
}

TYPED_TEST(DistanceGradientOf, NanComesThrough) {
  on_every_isa([] {
    for_each_case([](const Case& of) {
      const Fenced<TypeParam> slopes(16, TypeParam(1)), squares(16, TypeParam(0.5));
      for (int i = 0; i < 16; i += 3) slopes[i] = nan<TypeParam>;
      run(of, slopes, squares);
      for (int i = 0; i < 16; ++i) ASSERT_EQ(std::isnan(slopes[i]), i % 3 == 0) << i;
    });
  });
}

}  // namespace
}  // namespace qkv::test
