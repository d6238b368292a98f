// kernels/gradients_test.cpp: weights and the gradients of scores, from products and step by step.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block_data.h"
#include "kernels/gradient_data.h"
#include "kernels/gradients.h"
#include "kernels/score_block.h"

namespace qkv::test {
namespace {

using kernels::RecallArgs;

template <class T>
class GradientsOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(GradientsOf, Types);

double identity(double x) { return x; }

// 2^x is off by its argument's error and, relatively, by at most 2.2e-7 (float), 3e-16 (double): below 4 roundings.
template <class T>
long double error_of_exp2(long double x, long double error_of_x) {
  const long double factor = (1 + 4 * rounding<T>)*std::exp2(error_of_x);
  return std::exp2(x) * (factor - 1);
}

// A block as it is before and after. Where weights are 0, both signs of it occur.
template <class T>
struct Block {
  int lanes;
  Fenced<T> weights, slopes;

  Block(int lanes_, int keys) : lanes(lanes_), weights(keys * lanes_), slopes(keys * lanes_) {}
  void randomize(std::uint64_t seed) const {
    Random random(seed);
    for (int i = 0; i < weights.size(); ++i) {
      weights[i] = random.chance(0.25) ? (random.chance(0.5) ? T(0) : -T(0)) : static_cast<T>(random.uniform());
      slopes[i] = static_cast<T>(random.normal());
    }
  }
};

// Weigh or chain on the queries, keys and numbers per row of `s`.
template <class T>
void recall(void (*kernel)(const RecallArgs<T>&), const Scoring<T>& s, int first, int last, const Block<T>& block) {
  Guarded<T> queries(s.q.size()), per_row(s.per_row.size());
  const int stride = s.depth + 3;  // NaN between the rows, and nothing behind the last one
  Guarded<T> keys(static_cast<std::size_t>((s.keys - 1) * stride + s.depth), nan<T>);
  for (int e = 0; e < s.depth; ++e) {
    for (int r = 0; r < s.lanes; ++r) queries[e * s.lanes + r] = s.query(r, e);
    for (int j = 0; j < s.keys; ++j) keys[j * stride + e] = s.key(j, e);
  }
  std::copy(s.per_row.begin(), s.per_row.end(), per_row.data());
  kernel({queries.data(), keys.data(), stride, s.depth, s.lanes, first, last, per_row.data(), block.weights.data(),
          block.slopes.data()});
}

// start + q_r . k_j. Each of its terms is rounded as a product and in `depth` sums.
template <class T>
ExactSum product(const Scoring<T>& s, int r, int j, long double start) {
  ExactSum sum;
  sum.add(start);
  for (int e = 0; e < s.depth; ++e) {
    sum.add(static_cast<long double>(s.query(r, e)) * static_cast<long double>(s.key(j, e)));
  }
  return sum;
}
template <class T>
long double per_row(const Scoring<T>& s, int r) {
  return s.per_row[static_cast<std::size_t>(r)];
}

// Calls body(scoring, first, last) for all lanes, depths and runs of keys: every length up to two of the highest tiles
// and one more, whatever the tiles of the instruction set are.
template <class T, class Body>
void for_each_product(double size_of_elements, const Body& body) {
  std::vector<Run> all = runs;
  for (int length = 0; length <= 17; ++length) all.push_back({length % 3, length % 3 + length});
  for (const int lanes : panel_lanes<T>()) {
    for (const int depth : depths) {
      const auto s = random_scoring<T>(lanes, 33, depth, static_cast<std::uint64_t>(depth) + 1,
                                       [=](double x) { return size_of_elements * x; });
      for (const auto [first, last] : all) {
        SCOPED_TRACE(std::to_string(lanes) + " lanes, depth " + std::to_string(depth) + ", keys " +
                     std::to_string(first) + " to " + std::to_string(last));
        body(s, first, last);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// Calls check(place, r, j) for the keys of a run; elsewhere, and in the other array, all is as before.
template <class T, class Check>
void check_run(const Fenced<T>& written, int lanes, int first, int last, const Check& check) {
  for (int i = 0; i < written.size(); ++i) {
    const int j = i / lanes;
    if (first <= j && j < last) {
      check(i, i % lanes, j);
    } else {
      ASSERT_EQ(written[i], untouched<T>) << "written outside of the run, key " << j;
    }
  }
}

TYPED_TEST(GradientsOf, WeighIsRightAtEveryDepthAndRunOfKeys) {
  on_every_isa([] {
    for_each_product<TypeParam>(0.7, [](const auto& s, int first, int last) {
      const Block<TypeParam> block(s.lanes, s.keys);
      recall(gradient_kernels<TypeParam>().weigh, s, first, last, block);
      check_run(block.weights, s.lanes, first, last, [&](int i, int r, int j) {
        const ExactSum exponent = product(s, r, j, -per_row(s, r));
        const auto error = error_of_exp2<TypeParam>(exponent.value, exponent.tolerance<TypeParam>(s.depth + 1));
        ASSERT_LE(std::abs(block.weights[i] - std::exp2(exponent.value)), error) << "row " << r << ", key " << j;
      });
      check_run(block.slopes, s.lanes, 0, 0, [](int, int, int) {});
    });
  });
}

TYPED_TEST(GradientsOf, WeighGivesExactZerosAndOnes) {
  on_every_isa([] {
    for (const int lanes : panel_lanes<TypeParam>()) {
      auto s = random_scoring<TypeParam>(lanes, 17, 9, 1, [](double x) { return std::round(x); });
      for (TypeParam& reference : s.per_row) reference = infinity<TypeParam>;  // a row that may see no key
      const Block<TypeParam> nothing(lanes, s.keys), best(lanes, s.keys);
      recall(gradient_kernels<TypeParam>().weigh, s, 0, s.keys, nothing);
      for (int i = 0; i < nothing.weights.size(); ++i) ASSERT_EQ(nothing.weights[i], 0);
      for (int r = 0; r < lanes; ++r) {
        s.per_row[static_cast<std::size_t>(r)] = static_cast<TypeParam>(product(s, r, 16, 0).value);
      }
      recall(gradient_kernels<TypeParam>().weigh, s, 0, s.keys, best);
      for (int r = 0; r < lanes; ++r) ASSERT_EQ(best.weights[16 * lanes + r], 1);
    }
  });
}

// A NaN reaches its row or its key, and nothing else changes.
TYPED_TEST(GradientsOf, NanComesThroughWeigh) {
  on_every_isa([] {
    for (const int lanes : panel_lanes<TypeParam>()) {
      const auto s = random_scoring<TypeParam>(lanes, 13, 19, 3, identity);
      const Block<TypeParam> clean(lanes, s.keys);
      recall(gradient_kernels<TypeParam>().weigh, s, 0, s.keys, clean);
      for (int e = 0; e < s.depth; ++e) {
        const int row = e % lanes, key = e % s.keys;
        auto by_query = s, by_key = s;
        by_query.query(row, e) = by_key.key(key, e) = nan<TypeParam>;
        const Block<TypeParam> of_query(lanes, s.keys), of_key(lanes, s.keys);
        recall(gradient_kernels<TypeParam>().weigh, by_query, 0, s.keys, of_query);
        recall(gradient_kernels<TypeParam>().weigh, by_key, 0, s.keys, of_key);
        for (int i = 0; i < clean.weights.size(); ++i) {
          const TypeParam before = clean.weights[i];
          ASSERT_TRUE(same_number(of_query.weights[i], i % lanes == row ? nan<TypeParam> : before)) << i;
          ASSERT_TRUE(same_number(of_key.weights[i], i / lanes == key ? nan<TypeParam> : before)) << i;
        }
      }
    }
  });
}

TYPED_TEST(GradientsOf, ChainIsRightAtEveryDepthAndRunOfKeys) {
  on_every_isa([] {
    for_each_product<TypeParam>(1, [](const auto& s, int first, int last) {
      const Block<TypeParam> block(s.lanes, s.keys);
      block.randomize(7);
      std::fill_n(block.slopes.data(), block.slopes.size(), untouched<TypeParam>);
      const std::vector<TypeParam> weights(block.weights.data(), block.weights.data() + block.weights.size());
      recall(gradient_kernels<TypeParam>().chain, s, first, last, block);
      check_run(block.slopes, s.lanes, first, last, [&](int i, int r, int j) {
        const long double weight = weights[static_cast<std::size_t>(i)];
        const ExactSum sum = product(s, r, j, per_row(s, r));
        // The product with the weight is rounded once more.
        const auto error = std::abs(weight) * sum.tolerance<TypeParam>(s.depth + 2);
        ASSERT_LE(std::abs(block.slopes[i] - weight * sum.value), error) << "row " << r << ", key " << j;
      });
      for (int i = 0; i < block.weights.size(); ++i) {
        ASSERT_TRUE(same_number(block.weights[i], weights[static_cast<std::size_t>(i)])) << "a weight changed";
      }
    });
  });
}

TYPED_TEST(GradientsOf, ChainOfAWeightOfZeroIsZeroWhateverTheProductIs) {
  on_every_isa([] {
    for (const int lanes : panel_lanes<TypeParam>()) {
      for (const TypeParam poison : {nan<TypeParam>, infinity<TypeParam>, -infinity<TypeParam>}) {
        auto s = random_scoring<TypeParam>(lanes, 17, 5, 1, [](double x) { return 1 + std::abs(x); });
        for (int j = 0; j < s.keys; j += 2) s.key(j, j % s.depth) = poison;
        s.per_row[0] = poison;
        const Block<TypeParam> block(lanes, s.keys);
        block.randomize(3);
        recall(gradient_kernels<TypeParam>().chain, s, 0, s.keys, block);
        for (int i = 0; i < block.slopes.size(); ++i) {
          const TypeParam weight = block.weights[i];
          const bool poisoned = i / lanes % 2 == 0 || i % lanes == 0;
          if (weight == 0) {
            ASSERT_EQ(block.slopes[i], 0) << i;
          } else {
            ASSERT_TRUE(poisoned ? same_number(block.slopes[i], poison) : std::isfinite(block.slopes[i])) << i;
          }
        }
      }
    }
  });
}

TYPED_TEST(GradientsOf, ExponentialsAreRight) {
  for_every_block(panel_lanes<TypeParam>, [](int lanes, int keys) {
    const Block<TypeParam> block(lanes, keys);
    const auto s = random_scoring<TypeParam>(lanes, keys, 1, 1, [](double x) { return 9 * x; });
    const Aligned<TypeParam> reference(s.per_row.begin(), s.per_row.end());
    std::copy_n(random_scoring<TypeParam>(1, keys * lanes, 1, 2, [](double x) { return 9 * x; }).k.begin(),
                keys * lanes, block.weights.data());
    // What a mask excludes, what is far below, and what is nobody's.
    const TypeParam others[] = {-infinity<TypeParam>, TypeParam(-1e30), nan<TypeParam>};
    for (int i = 0; i < keys * lanes; i += 5) block.weights[i] = others[i % 3];
    const std::vector<TypeParam> scores(block.weights.data(), block.weights.data() + keys * lanes);
    gradient_kernels<TypeParam>().exponentials(
        {block.weights.data(), block.slopes.data(), lanes, keys, reference.data(), nullptr, nullptr, nullptr, false});
    for (int i = 0; i < keys * lanes; ++i) {
      const TypeParam score = scores[static_cast<std::size_t>(i)], weight = block.weights[i];
      const long double x = static_cast<long double>(score) - reference[static_cast<std::size_t>(i % lanes)];
      if (std::isnan(score)) {
        ASSERT_TRUE(std::isnan(weight)) << i;
      } else if (score < -1e20) {
        ASSERT_EQ(weight, 0) << i;
      } else {
        // The difference is rounded once.
        ASSERT_LE(std::abs(weight - std::exp2(x)), error_of_exp2<TypeParam>(x, std::abs(x) * rounding<TypeParam>)) << i;
      }
    }
    check_run(block.slopes, lanes, 0, 0, [](int, int, int) {});
  });
}

TYPED_TEST(GradientsOf, ExponentialsOfARowThatSeesNoKeyAreZero) {
  for_every_block(panel_lanes<TypeParam>, [](int lanes, int keys) {
    const Block<TypeParam> block(lanes, keys);
    block.randomize(1);
    for (int i = 0; i < keys * lanes; i += 3) block.weights[i] = -infinity<TypeParam>;
    const Aligned<TypeParam> reference(static_cast<std::size_t>(lanes), infinity<TypeParam>);
    gradient_kernels<TypeParam>().exponentials(
        {block.weights.data(), nullptr, lanes, keys, reference.data(), nullptr, nullptr, nullptr, false});
    for (int i = 0; i < keys * lanes; ++i) ASSERT_EQ(block.weights[i], 0) << i;
  });
}

TYPED_TEST(GradientsOf, ScaleIsAProductRoundedOnce) {
  for_every_block(panel_lanes<TypeParam>, [](int lanes, int keys) {
    const Block<TypeParam> block(lanes, keys);
    block.randomize(1);
    for (int i = 0; i < keys * lanes; i += 7) block.weights[i] = i % 2 == 0 ? nan<TypeParam> : -infinity<TypeParam>;
    const std::vector<TypeParam> before(block.weights.data(), block.weights.data() + keys * lanes);
    Random random(2);
    Aligned<TypeParam> factors;
    for (int r = 0; r < lanes; ++r) factors.push_back(static_cast<TypeParam>(random.normal()));
    std::fill_n(block.slopes.data(), keys * lanes, untouched<TypeParam>);
    gradient_kernels<TypeParam>().scale(
        {block.weights.data(), block.slopes.data(), lanes, keys, factors.data(), nullptr, nullptr, nullptr, false});
    for (int i = 0; i < keys * lanes; ++i) {
      const TypeParam exact = before[static_cast<std::size_t>(i)] * factors[static_cast<std::size_t>(i % lanes)];
      ASSERT_TRUE(same_number(block.weights[i], exact)) << i;
    }
    check_run(block.slopes, lanes, 0, 0, [](int, int, int) {});
  });
}

}  // namespace
}  // namespace qkv::test
