// kernels/chain_any_test.cpp: the gradients of scores that are not plain dot products.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block_data.h"
#include "kernels/gradient_data.h"
#include "kernels/gradients.h"

namespace qkv::test {
namespace {

template <class T>
class ChainAnyOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ChainAnyOf, Types);

// Which of the things that may be left out are given.
struct Given {
  bool entropy, multiplier, keep_zeros;
};

template <class T>
struct Rows {
  Aligned<T> added, entropy, multiplier;
};

// factor * (slope + added - entropy ln(weight)), and how far rounding may take it. log2 is off by 5 roundings, its
// factor ln(2), the product with it and with the entropy by one each; then there are two sums and a product.
template <class T>
ExactSum expected(const Given& given, const Rows<T>& rows, T weight, T slope, int r) {
  const auto row = static_cast<std::size_t>(r);
  const long double w = weight, u = rounding<T>, factor = given.multiplier ? rows.multiplier[row] : weight,
                    entropy = given.entropy ? rows.entropy[row] : T(0),
                    sum = static_cast<long double>(slope) + rows.added[row];
  ExactSum exact;
  if (w == 0 && !(given.keep_zeros && entropy == 0)) return exact;
  const long double logarithm = entropy == 0 ? 0 : entropy * std::log(w);
  exact.add(factor * (sum - logarithm), std::abs(factor) * u * (3 * std::abs(sum) + (8 + 2) * std::abs(logarithm)));
  return exact;
}

template <class T>
void run(const Given& given, const Rows<T>& rows, const Fenced<T>& weights, const Fenced<T>& slopes, int lanes) {
  kernels::ChainArgs<T> args{weights.data(), slopes.data(), lanes, weights.size() / lanes};
  args.added = rows.added.data();
  if (given.entropy) args.entropy = rows.entropy.data();
  if (given.multiplier) args.multiplier = rows.multiplier.data();
  args.keep_zeros = given.keep_zeros;
  gradient_kernels<T>().chain_any(args);
}

// Runs the kernel in every form, on what is in weights and slopes, and compares. Where the formula has no number, or
// an infinite one, so must the kernel.
template <class T>
void expect_right(const Rows<T>& rows, const std::vector<T>& weights_before, const std::vector<T>& slopes_before,
                  int lanes) {
  const int count = static_cast<int>(weights_before.size());
  const Fenced<T> weights(count), slopes(count);
  for (const bool entropy : {false, true}) {
    for (const bool multiplier : {false, true}) {
      for (const bool keep_zeros : {false, true}) {
        const Given given{entropy, multiplier, keep_zeros};
        SCOPED_TRACE("entropy " + std::to_string(entropy) + ", multiplier " + std::to_string(multiplier) +
                     ", keep_zeros " + std::to_string(keep_zeros));
        std::copy(weights_before.begin(), weights_before.end(), weights.data());
        std::copy(slopes_before.begin(), slopes_before.end(), slopes.data());
        run(given, rows, weights, slopes, lanes);
        for (int i = 0; i < count; ++i) {
          const T weight = weights_before[static_cast<std::size_t>(i)];
          const ExactSum exact = expected(given, rows, weight, slopes_before[static_cast<std::size_t>(i)], i % lanes);
          if (std::isfinite(exact.value)) {
            ASSERT_LE(std::abs(slopes[i] - exact.value), exact.error) << "place " << i << ", weight " << weight;
          } else {
            ASSERT_TRUE(same_number(slopes[i], static_cast<T>(exact.value))) << "place " << i << ", weight " << weight;
          }
          ASSERT_TRUE(same_number(weights[i], weight)) << "a weight changed";
        }
      }
    }
  }
}

// The entropy of every third row is 0, as without it.
template <class T>
Rows<T> random_rows(int lanes) {
  Random random(5);
  Rows<T> rows;
  for (int r = 0; r < lanes; ++r) {
    rows.added.push_back(static_cast<T>(random.normal()));
    rows.entropy.push_back(r % 3 == 1 ? T(0) : static_cast<T>(random.normal()));
    rows.multiplier.push_back(static_cast<T>(random.normal()));
  }
  return rows;
}

TYPED_TEST(ChainAnyOf, EveryFormIsRight) {
  for_every_block(panel_lanes<TypeParam>, [](int lanes, int keys) {
    Random random(1);
    std::vector<TypeParam> weights, slopes;
    for (int i = 0; i < keys * lanes; ++i) {
      const double weight = random.chance(0.2) ? 0 : random.uniform() * std::exp2(-100 * random.uniform());
      weights.push_back(static_cast<TypeParam>(weight));
      slopes.push_back(static_cast<TypeParam>(random.normal()));
    }
    expect_right(random_rows<TypeParam>(lanes), weights, slopes, lanes);
  });
}

// Among them: a product that is NaN where the weight is 0; linear weights, which may be negative and have no logarithm.
TYPED_TEST(ChainAnyOf, WhatIsNoNumberReachesItsOwnPlaceOnly) {
  on_every_isa([] {
    for (const int lanes : panel_lanes<TypeParam>()) {
      std::vector<TypeParam> weights, slopes;
      for (const double weight : {0.0, -0.0, 1.0, 0.25, -0.5, infinity<double>, nan<double>}) {
        for (const double slope : {0.5, infinity<double>, -infinity<double>, nan<double>}) {
          for (int r = 0; r < lanes; ++r) {
            weights.push_back(static_cast<TypeParam>(weight));
            slopes.push_back(static_cast<TypeParam>(r % 5 == 4 ? 0.5 : slope));
          }
        }
      }
      auto rows = random_rows<TypeParam>(lanes);
      expect_right(rows, weights, slopes, lanes);
      rows.added[0] = nan<TypeParam>;
      rows.added[static_cast<std::size_t>(lanes - 1)] = infinity<TypeParam>;
      expect_right(rows, weights, slopes, lanes);
    }
  });
}

TYPED_TEST(ChainAnyOf, AnEntropyOfZeroHasTheBitsOfNone) {
  on_every_isa([] {
    for (const int lanes : panel_lanes<TypeParam>()) {
      auto rows = random_rows<TypeParam>(lanes);
      std::fill(rows.entropy.begin(), rows.entropy.end(), TypeParam(0));
      for (const bool multiplier : {false, true}) {
        for (const bool keep_zeros : {false, true}) {
          const Fenced<TypeParam> weights(7 * lanes), with(7 * lanes), without(7 * lanes);
          Random random(1);
          for (int i = 0; i < 7 * lanes; ++i) {
            weights[i] = random.chance(0.2) ? TypeParam(0) : static_cast<TypeParam>(random.normal());
            with[i] = without[i] = static_cast<TypeParam>(random.normal());
          }
          run({true, multiplier, keep_zeros}, rows, weights, with, lanes);
          run({false, multiplier, keep_zeros}, rows, weights, without, lanes);
          for (int i = 0; i < 7 * lanes; ++i) ASSERT_TRUE(same_number(with[i], without[i])) << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
