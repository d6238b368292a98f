// kernels/distance_test.cpp: scores by distance: every kernel, its value and its logarithm.
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/score_block.h"

namespace qkv::test {
namespace {

using kernels::DistanceKernel;

template <class T>
constexpr ScoreOf<T> distance = &kernels::ScoreKernels<T>::distance;

template <class T>
class DistanceOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DistanceOf, Types);

constexpr DistanceKernel all_kernels[] = {DistanceKernel::gaussian, DistanceKernel::laplace, DistanceKernel::boxcar,
                                          DistanceKernel::triangular, DistanceKernel::epanechnikov};

long double value_of(DistanceKernel kernel, long double square) {
  const long double u = std::sqrt(square);
  switch (kernel) {
    case DistanceKernel::gaussian:
      return std::exp(-square / 2);
    case DistanceKernel::laplace:
      return std::exp(-u);
    case DistanceKernel::boxcar:
      return square <= 1 ? 1 : 0;
    case DistanceKernel::triangular:
      return std::max(0.0L, 1 - u);
    case DistanceKernel::epanechnikov:
      break;
  }
  return 0.75L * std::max(0.0L, 1 - square);
}

// By its own formula where the value itself would be too small for its logarithm.
long double score_of(DistanceKernel kernel, long double square, long double unit) {
  if (unit == 0) return value_of(kernel, square);
  if (kernel == DistanceKernel::gaussian) return -unit * square / 2;
  if (kernel == DistanceKernel::laplace) return -unit * std::sqrt(square);
  return unit * std::log(value_of(kernel, square));
}

template <class T>
long double squared_distance(const Scoring<T>& s, int r, int j) {
  long double sum = 0;
  for (int e = 0; e < s.depth; ++e) {
    const long double x = static_cast<long double>(s.query(r, e)) - static_cast<long double>(s.key(j, e));
    sum += x * x;
  }
  return sum;
}

// A score is right that is the exact one, to 8 roundings, of a distance that is off by its own rounding: a difference
// counts twice in its square, and square, sums, 1 / sigma^2 and the root are rounded once. All kernels fall with the
// distance. An exponential has a relative error that grows with its argument: that of a distance that is off.
template <class T>
void expect_right(const Scores<T>& scores, const Scoring<T>& s, int r, int j) {
  const long double u = std::numeric_limits<T>::epsilon() / 2, unit = s.unit;
  const long double square = squared_distance(s, r, j) * s.per_row[static_cast<std::size_t>(r)];
  const long double off = square * (s.depth + 6) * u;
  const long double most = score_of(s.kernel, square - off, unit), least = score_of(s.kernel, square + off, unit);
  // 1 - u and 1 - u^2 are rounded in units of 1; a weight below 2^-125.5 is 0.
  const long double slack = 8 * u * (std::isinf(least) ? 0 : std::abs(least)) +
                            (unit == 0 ? 2 * u + std::numeric_limits<T>::min() : 2 * u * unit);
  const long double got = scores.at(r, j);
  ASSERT_TRUE(least - slack <= got && got <= most + slack) << "row " << r << ", key " << j << ": " << got << " for "
                                                           << score_of(s.kernel, square, unit) << ", u^2 " << square;
}

template <class T>
const std::vector<T> units = {T(0), static_cast<T>(std::numbers::log2e)};

double identity(double x) { return x; }

// Calls body(kernel, unit).
template <class T, class Body>
void for_each_kernel(const Body& body) {
  for (const DistanceKernel kernel : all_kernels) {
    for (const T unit : units<T>) {
      SCOPED_TRACE("kernel " + std::to_string(static_cast<int>(kernel)) + ", unit " + std::to_string(unit));
      body(kernel, unit);
    }
  }
}

TYPED_TEST(DistanceOf, EveryKernelIsRightAtEveryDepthAndRunOfKeys) {
  on_every_isa([] {
    for_each_kernel<TypeParam>([](DistanceKernel kernel, TypeParam unit) {
      for (const Form& form : all_forms<TypeParam>()) {
        for (const int depth : depths) {
          auto s = random_scoring<TypeParam>(form.lanes, 33, depth, static_cast<std::uint64_t>(depth) + 1, identity);
          s.kernel = kernel;
          s.unit = unit;
          // Distances of about 1: as many on one side of the edge of a compact kernel as on the other.
          for (TypeParam& w : s.per_row) w *= static_cast<TypeParam>(0.4 / std::max(depth, 1));
          for (const auto [first, last] : runs) {
            SCOPED_TRACE(form.name() + ", depth " + std::to_string(depth));
            const auto scores = score(form, distance<TypeParam>, s, first, last);
            for (int j = first; j < last; ++j) {
              for (int r = 0; r < form.lanes; ++r) expect_right(scores, s, r, j);
            }
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    });
  });
}

// One element a row: u is |key| exactly.
template <class T>
Scores<T> scores_at(const Form& form, DistanceKernel kernel, T unit, const std::vector<T>& distances) {
  const int keys = static_cast<int>(distances.size());
  Scoring<T> s{form.lanes, keys, 1, std::vector<T>(static_cast<std::size_t>(form.lanes), T(0)), distances, {T(1)}, {}};
  s.per_row.assign(static_cast<std::size_t>(form.lanes), T(1));
  s.kernel = kernel;
  s.unit = unit;
  return score(form, distance<T>, s);
}

TYPED_TEST(DistanceOf, TheEdgesOfTheKernelsAreExact) {
  on_every_isa([] {
    constexpr TypeParam infinity = std::numeric_limits<TypeParam>::infinity();
    const TypeParam beyond = std::nextafter(TypeParam(1), TypeParam(2));
    const std::vector<TypeParam> distances = {0, 1, beyond * beyond, 2, 1e6f, infinity};
    const auto expect = [&](DistanceKernel kernel, TypeParam unit, const std::vector<TypeParam>& expected) {
      for (const Form& form : all_forms<TypeParam>()) {
        const auto scores = scores_at(form, kernel, unit, distances);
        for (int j = 0; j < static_cast<int>(expected.size()); ++j) {
          for (int r = 0; r < form.lanes; ++r) {
            ASSERT_EQ(scores.at(r, j), expected[static_cast<std::size_t>(j)])
                << form.name() << ", kernel " << static_cast<int>(kernel) << ", unit " << unit << ", key " << j;
          }
        }
      }
    };
    const auto e = [](double x) { return static_cast<TypeParam>(x); };
    expect(DistanceKernel::boxcar, 0, {1, 1, 0, 0, 0, 0});
    expect(DistanceKernel::boxcar, 1, {0, 0, -infinity, -infinity, -infinity, -infinity});
    expect(DistanceKernel::triangular, 0, {1, 0, 0, 0, 0, 0});
    expect(DistanceKernel::triangular, 1, {0, -infinity, -infinity, -infinity, -infinity, -infinity});
    expect(DistanceKernel::epanechnikov, 0, {e(0.75), 0, 0, 0, 0, 0});
    expect(DistanceKernel::gaussian, 0, {1});
    expect(DistanceKernel::gaussian, 2, {0, -1});
    expect(DistanceKernel::laplace, 0, {1});
    expect(DistanceKernel::laplace, 2, {0, -2, -2 * (beyond * beyond), -4, -2e6f, -infinity});
    for (const Form& form : all_forms<TypeParam>()) {
      const auto scores = scores_at<TypeParam>(form, DistanceKernel::epanechnikov, 1, distances);
      EXPECT_NEAR(scores.at(0, 0), std::log(0.75), std::numeric_limits<TypeParam>::epsilon());
      for (int j = 1; j < 6; ++j) EXPECT_EQ(scores.at(0, j), -infinity);
      for (const DistanceKernel kernel : {DistanceKernel::gaussian, DistanceKernel::laplace}) {
        EXPECT_EQ(scores_at<TypeParam>(form, kernel, 0, distances).at(0, 5), 0);
        EXPECT_EQ(scores_at<TypeParam>(form, kernel, 1, distances).at(0, 5), -infinity);
      }
    }
  });
}

TYPED_TEST(DistanceOf, ALongerDistanceIsNeverALargerScore) {
  on_every_isa([] {
    std::vector<TypeParam> distances;
    for (int i = 0; i < 4000; ++i) distances.push_back(static_cast<TypeParam>(i) / 2000);
    for_each_kernel<TypeParam>([&](DistanceKernel kernel, TypeParam unit) {
      // An approximated exponential or logarithm may step back by its error.
      constexpr TypeParam step_back = 4 * std::numeric_limits<TypeParam>::epsilon();
      for (const Form& form : {panel_forms<TypeParam>().back(), decode_forms().front()}) {
        const auto scores = scores_at(form, kernel, unit, distances);
        for (int j = 1; j < 4000; ++j) {
          const TypeParam before = scores.at(0, j - 1), now = scores.at(0, j);
          ASSERT_TRUE(now <= before || now - before <= step_back * (1 + std::abs(now))) << j;
        }
      }
    });
  });
}

// Far from the origin the expansion q^2 - 2 q k + k^2 loses all digits; differences do not.
TYPED_TEST(DistanceOf, KeysFarFromTheOriginLoseNothing) {
  on_every_isa([] {
    for (const Form& form : all_forms<TypeParam>()) {
      SCOPED_TRACE(form.name());
      auto s = random_scoring<TypeParam>(form.lanes, 20, 24, 5, [](double x) { return 1e5 + x; });
      for (int j = 0; j < s.keys; ++j) {
        for (int r = 0; r < form.lanes; ++r) expect_right(score(form, distance<TypeParam>, s), s, r, j);
      }
    }
  });
}

TYPED_TEST(DistanceOf, ARowHasTheSameBitsInAnyCompany) {
  on_every_isa([] {
    for_each_kernel<TypeParam>([](DistanceKernel kernel, TypeParam unit) {
      const auto close = [](double x) { return 0.1 * x; };
      expect_same_bits_in_any_company(distance<TypeParam>, close, kernel, unit);
    });
  });
}

TYPED_TEST(DistanceOf, NanComesThrough) {
  on_every_isa([] {
    for_each_kernel<TypeParam>([](DistanceKernel kernel, TypeParam unit) {
      expect_nan_comes_through(distance<TypeParam>, identity, kernel, unit);
    });
  });
}

TYPED_TEST(DistanceOf, RowMaxIsRaised) {
  on_every_isa([] {
    for (const TypeParam unit : units<TypeParam>) expect_row_max_is_raised(distance<TypeParam>, identity, unit);
  });
}

}  // namespace
}  // namespace qkv::test
