// kernels/additive_test.cpp: the additive score, from exponentials and directly.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/score_block.h"

namespace qkv::test {
namespace {

template <class T>
constexpr ScoreOf<T> additive = &kernels::ScoreKernels<T>::additive;
template <class T>
constexpr ScoreOf<T> direct = &kernels::ScoreKernels<T>::additive_direct;

template <class T>
class AdditiveOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AdditiveOf, Types);

double identity(double x) { return x; }
double exponential(double x) { return std::exp(2 * x); }  // of a projection

template <class T>
long double unit_roundoff() {
  return std::numeric_limits<T>::epsilon() / 2;
}

// The score, and how far rounding may take it at most. A unit's share w / (1 + q k) is rounded 4 times with its
// partner's, and its quotient is good to 3 units in the last place (6 roundings); every sum of shares is rounded once.
// Twice all that is subtracted from the offset. Shares of four are rounded up to 7 times, but half as many are summed:
// they are held to the same.
struct Expected {
  long double score, error;
};
template <class T>
Expected expected_additive(const Scoring<T>& s, int r, int j) {
  long double sum = 0, magnitude = 0;
  for (int e = 0; e < s.depth; ++e) {
    const long double share = s.hidden[static_cast<std::size_t>(e)] /
                              (1 + static_cast<long double>(s.query(r, e)) * static_cast<long double>(s.key(j, e)));
    sum += share;
    magnitude += std::abs(share);
  }
  const long double score = s.offset - 2 * sum;
  return {score, unit_roundoff<T>() * ((4 + 6 + s.depth / 2.0L) * 2 * magnitude + std::abs(score))};
}

// tanh has a relative error of at most 3e-7 (float), 6e-16 (double), its argument is rounded once, and so is every sum.
template <class T>
Expected expected_direct(const Scoring<T>& s, int r, int j) {
  long double sum = 0, error = 0;
  for (int e = 0; e < s.depth; ++e) {
    const long double w = s.hidden[static_cast<std::size_t>(e)],
                      x = static_cast<long double>(s.query(r, e)) + static_cast<long double>(s.key(j, e)),
                      t = std::tanh(x), slope = std::isinf(x) ? 0 : x * (1 - t * t);
    sum += w * t;
    error += std::abs(w) * (std::abs(t) * ((sizeof(T) == 4 ? 3e-7L : 6e-16L) + s.depth * unit_roundoff<T>()) +
                            std::abs(slope) * unit_roundoff<T>());
  }
  return {sum, error};
}

constexpr auto is_right = [](auto expected) {
  return [expected](const auto& scores, const auto& s, int r, int j) {
    const auto [exact, error] = expected(s, r, j);
    ASSERT_LE(std::abs(scores.at(r, j) - exact), error) << "row " << r << ", key " << j << ": " << scores.at(r, j);
  };
};
template <class T>
constexpr auto is_additive = is_right(expected_additive<T>);
template <class T>
constexpr auto is_direct = is_right(expected_direct<T>);

TYPED_TEST(AdditiveOf, AdditiveIsRightAtEveryDepthAndRunOfKeys) {
  on_every_isa([] { for_each_score(additive<TypeParam>, exponential, is_additive<TypeParam>); });
}

TYPED_TEST(AdditiveOf, DirectIsRightAtEveryDepthAndRunOfKeys) {
  on_every_isa([] { for_each_score(direct<TypeParam>, identity, is_direct<TypeParam>); });
}

// Calls check as above for a block whose elements are taken from a list, and weights multiplied.
template <class T, class Check>
void check_all_pairs(ScoreOf<T> which, const std::vector<double>& elements, const Check& check, double weight = 1) {
  for (const Form& form : all_forms<T>()) {
    SCOPED_TRACE(form.name());
    const int count = static_cast<int>(elements.size()), keys = count * count, depth = 17;
    auto s = random_scoring<T>(form.lanes, keys, depth, 5, identity);
    Random random(1);
    for (T& x : s.hidden) x *= static_cast<T>(weight);
    s.offset *= static_cast<T>(weight);
    for (T& x : s.q) x = static_cast<T>(elements[static_cast<std::size_t>(random.below(count))]);
    for (T& x : s.k) x = static_cast<T>(elements[static_cast<std::size_t>(random.below(count))]);
    // And all elements of a row alike.
    for (int j = 0; j < count; ++j) {
      for (int e = 0; e < depth; ++e) {
        s.query(j % form.lanes, e) = static_cast<T>(elements.back());
        s.key(j, e) = static_cast<T>(elements[static_cast<std::size_t>(j)]);
      }
    }
    const auto scores = score(form, which, s);
    for (int j = 0; j < keys; ++j) {
      for (int r = 0; r < form.lanes; ++r) check(scores, s, r, j);
    }
  }
}

TYPED_TEST(AdditiveOf, AdditiveIsRightToTheEdgeOfItsRange) {
  on_every_isa([] {
    std::vector<double> elements;
    for (const double x : {-21.5, -21.0, -10.0, 0.0, 10.0, 21.0, 21.5}) elements.push_back(std::exp(x));
    check_all_pairs(additive<TypeParam>, elements, is_additive<TypeParam>);
  });
}

// Four denominators are multiplied where neither that nor their product with a weight overflows: on both sides of it.
TYPED_TEST(AdditiveOf, AdditiveIsRightWhereFourUnitsMayNotBeShared) {
  on_every_isa([] {
    for (const double largest : {0x1.fp14, 0x1.6p15, 0x1p16, 0x1p25}) {
      for (const double weight : {0x1p-30, 1.0, 0x1p29, 0x1p31, 0x1p60}) {
        check_all_pairs(additive<TypeParam>, {1 / largest, 1e-3, 1, 7, largest}, is_additive<TypeParam>, weight);
      }
    }
  });
}

TYPED_TEST(AdditiveOf, DirectIsRightForLargeProjections) {
  on_every_isa([] {
    check_all_pairs(direct<TypeParam>, {-1e4, -60, -44, -10, -1e-3, 0, 1e-6, 0.3, 9, 21.5, 45, 9.999e3, 1e4},
                    is_direct<TypeParam>);
  });
}

TYPED_TEST(AdditiveOf, DirectOfInfinityIsTheWeightItself) {
  on_every_isa([] {
    const double infinity = std::numeric_limits<double>::infinity();
    check_all_pairs(direct<TypeParam>, {-1e4, 0, 1, infinity}, is_direct<TypeParam>);
    check_all_pairs(direct<TypeParam>, {-1, 0, 1e4, -infinity}, is_direct<TypeParam>);
  });
}

TYPED_TEST(AdditiveOf, InfinitiesOfOppositeSignsAreNan) {
  on_every_isa([] {
    for (const Form& form : all_forms<TypeParam>()) {
      auto s = random_scoring<TypeParam>(form.lanes, 3, 5, 1, identity);
      for (int r = 0; r < form.lanes; ++r) s.query(r, 4) = std::numeric_limits<TypeParam>::infinity();
      s.key(1, 4) = -std::numeric_limits<TypeParam>::infinity();
      const auto scores = score(form, direct<TypeParam>, s);
      for (int j = 0; j < 3; ++j) ASSERT_EQ(std::isnan(scores.at(0, j)), j == 1) << form.name();
    }
  });
}

TYPED_TEST(AdditiveOf, BothWaysAgree) {
  on_every_isa([] {
    for (const Form& form : all_forms<TypeParam>()) {
      auto s = random_scoring<TypeParam>(form.lanes, 40, 33, 9, identity);
      const auto by_tanh = score(form, direct<TypeParam>, s);
      auto exponentials = s;
      for (auto* x : {&exponentials.q, &exponentials.k}) {
        for (TypeParam& v : *x) v = std::exp(2 * v);
      }
      const auto by_exponentials = score(form, additive<TypeParam>, exponentials);
      for (int j = 0; j < s.keys; ++j) {
        for (int r = 0; r < form.lanes; ++r) {
          // An exponential is off by 2 roundings and, of its argument, up to 10 more; a share changes by a quarter of
          // it.
          const auto error = expected_additive(exponentials, r, j).error + expected_direct(s, r, j).error +
                             static_cast<long double>(s.depth) * 8 * unit_roundoff<TypeParam>();
          ASSERT_LE(std::abs(static_cast<long double>(by_exponentials.at(r, j) - by_tanh.at(r, j))), error)
              << form.name();
        }
      }
    }
  });
}

// Worst cases add up in the bounds above, and hide what is lost on average.
TYPED_TEST(AdditiveOf, AdditiveRoundsNoMoreThanAPlainLoop) {
  on_every_isa([] {
    for (const Form& form : all_forms<TypeParam>()) {
      const auto s = random_scoring<TypeParam>(form.lanes, 300, 64, 13, exponential);
      const auto scores = score(form, additive<TypeParam>, s);
      long double ours = 0, plain = 0;
      for (int j = 0; j < s.keys; ++j) {
        for (int r = 0; r < form.lanes; ++r) {
          const auto exact = expected_additive(s, r, j).score;
          TypeParam sum = 0;
          for (int e = 0; e < s.depth; ++e) {
            sum += s.hidden[static_cast<std::size_t>(e)] / (1 + s.query(r, e) * s.key(j, e));
          }
          ours += std::pow(scores.at(r, j) - exact, 2);
          plain += std::pow(s.offset - 2 * sum - exact, 2);
        }
      }
      // Two units that share a quotient are rounded three times more: 25 % of the root mean square are allowed for it.
      EXPECT_LE(std::sqrt(ours), 1.25 * std::sqrt(plain)) << form.name();
    }
  });
}

TYPED_TEST(AdditiveOf, ARowHasTheSameBitsInAnyCompany) {
  on_every_isa([] {
    expect_same_bits_in_any_company(additive<TypeParam>, exponential);
    expect_same_bits_in_any_company(direct<TypeParam>, identity);
  });
}

TYPED_TEST(AdditiveOf, NanComesThrough) {
  on_every_isa([] {
    expect_nan_comes_through(additive<TypeParam>, exponential);
    expect_nan_comes_through(direct<TypeParam>, identity);
  });
}

TYPED_TEST(AdditiveOf, RowMaxIsRaised) {
  on_every_isa([] {
    expect_row_max_is_raised(additive<TypeParam>, exponential);
    expect_row_max_is_raised(direct<TypeParam>, identity);
  });
}

}  // namespace
}  // namespace qkv::test
