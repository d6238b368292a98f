// kernels/entropy_test.cpp: softmax weights with the running sum of weight * log2(weight).
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block.h"
#include "kernels/block_data.h"

namespace qkv::test {
namespace {

using kernels::WeighArgs;

// Both kernels that weigh, on rows that go through several blocks.
enum class Kernel { panel, decode };

template <class T>
struct Rows {
  Kernel kernel;
  int lanes;
  Aligned<T> max, sum, rescale, entropy;
  std::vector<std::vector<T>> seen;     // all scores, by row
  std::vector<std::vector<T>> weights;  // of the last block, by row

  Rows(Kernel which, int count) : kernel(which), lanes(count) {
    const auto size = static_cast<std::size_t>(count);
    max.assign(size, -infinity<T>);
    sum.assign(size, T(0));
    rescale.assign(size, nan<T>);
    entropy.assign(size, T(0));
    seen.resize(size);
    weights.resize(size);
  }

  // scores[r][j], one more block.
  void weigh(const std::vector<std::vector<T>>& scores, bool with_entropy = true) {
    const int keys = static_cast<int>(scores[0].size()), pad = kernels::decode_pad;
    const int padded = kernel == Kernel::decode ? (keys + pad - 1) / pad * pad : keys;
    Aligned<T> block(static_cast<std::size_t>(padded * lanes), nan<T>);
    Aligned<T> row_max(static_cast<std::size_t>(lanes), -infinity<T>);
    for (int r = 0; r < lanes; ++r) {
      const auto row = static_cast<std::size_t>(r);
      for (int j = 0; j < keys; ++j) {
        const T score = scores[row][static_cast<std::size_t>(j)];
        block[place(lanes, j, r)] = score;
        if (score > row_max[row]) row_max[row] = score;
        seen[row].push_back(score);
      }
    }
    const WeighArgs<T> args = {block.data(), lanes,      keys,           row_max.data(),
                               max.data(),   sum.data(), rescale.data(), with_entropy ? entropy.data() : nullptr};
    if (kernel == Kernel::panel) {
      kernels::panel_kernels<T>(current_isa()).weigh(args);
    } else {
      kernels::decode_kernels<T>(current_isa()).weigh(args);
    }
    for (int r = 0; r < lanes; ++r) {
      auto& row = weights[static_cast<std::size_t>(r)];
      row.clear();
      for (int j = 0; j < keys; ++j) row.push_back(block[place(lanes, j, r)]);
    }
  }
};

struct Expected {
  double sum = 0, entropy = 0;
  double furthest = 0;  // the largest |score - max| of a weight that is not 0
};
template <class T>
Expected expected(const std::vector<T>& scores) {
  double highest = -infinity<double>;
  for (const T score : scores) highest = std::max(highest, static_cast<double>(score));
  Expected of;
  for (const T score : scores) {
    if (score == -infinity<T>) continue;
    const double logarithm = static_cast<double>(score) - highest, weight = std::exp2(logarithm);
    of.sum += weight;
    of.entropy += weight * logarithm;
    if (weight > 1e-30) of.furthest = std::max(of.furthest, -logarithm);
  }
  return of;
}

// A weight of 2^x is off by the rounding of x (|x| ln(2) epsilon / 2), by 2^x itself (2 epsilon; see vector-inl.h) and,
// for earlier blocks, by as much again in the factor that rescales them; sums of terms of one sign add a few roundings
// of the whole.
template <class T>
void expect_right(const Rows<T>& rows) {
  for (std::size_t r = 0; r < rows.seen.size(); ++r) {
    const Expected of = expected(rows.seen[r]);
    const double tolerance = (8 + of.furthest) * epsilon<T>;
    ASSERT_NEAR(static_cast<double>(rows.sum[r]), of.sum, tolerance * of.sum) << "row " << r;
    ASSERT_NEAR(static_cast<double>(rows.entropy[r]), of.entropy, tolerance * std::abs(of.entropy)) << "row " << r;
  }
}

template <class T>
std::vector<std::vector<T>> random_scores(int rows, int keys, std::uint64_t seed, double scale, double offset = 0) {
  Random random(seed);
  std::vector<std::vector<T>> scores(static_cast<std::size_t>(rows));
  for (auto& row : scores) {
    for (int j = 0; j < keys; ++j) row.push_back(static_cast<T>(offset + scale * random.normal()));
  }
  return scores;
}

template <class T>
class Entropy : public testing::Test {
 protected:
  template <class Body>
  static void for_every_kernel(Body body) {
    for_every_block(panel_lanes<T>, [&](int lanes, int keys) { body(Kernel::panel, lanes, keys); });
    for_every_block([] { return decode_lanes; }, [&](int lanes, int keys) { body(Kernel::decode, lanes, keys); });
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Entropy, Types);

TYPED_TEST(Entropy, IsTheSumOfWeightsTimesTheirLogarithms) {
  this->for_every_kernel([](Kernel kernel, int lanes, int keys) {
    for (const double scale : {0.01, 1.0, 30.0}) {
      Rows<TypeParam> rows(kernel, lanes);
      rows.weigh(random_scores<TypeParam>(lanes, keys, 1, scale));
      expect_right(rows);
    }
  });
}

TYPED_TEST(Entropy, FollowsTheMaximumFromBlockToBlock) {
  this->for_every_kernel([](Kernel kernel, int lanes, int keys) {
    Rows<TypeParam> rows(kernel, lanes);
    std::uint64_t seed = 1;
    for (const double offset : {0.0, 5.0, -20.0, 5.5, 40.0, 39.0}) {
      rows.weigh(random_scores<TypeParam>(lanes, keys, ++seed, 3, offset));
      expect_right(rows);
    }
  });
}

TYPED_TEST(Entropy, ForgetsWhatIsFarBelow) {
  this->for_every_kernel([](Kernel kernel, int lanes, int keys) {
    if (keys == 0) return;
    Rows<TypeParam> rows(kernel, lanes);
    rows.weigh(random_scores<TypeParam>(lanes, keys, 1, 3, -1e30));
    rows.weigh(random_scores<TypeParam>(lanes, keys, 2, 3, 1e4));
    for (auto& row : rows.seen) row.erase(row.begin(), row.begin() + keys);
    expect_right(rows);
    for (const TypeParam factor : rows.rescale) ASSERT_EQ(factor, 0);
  });
}

TYPED_TEST(Entropy, IsZeroWhereThereIsNothingOrOneKey) {
  this->for_every_kernel([](Kernel kernel, int lanes, int keys) {
    Rows<TypeParam> rows(kernel, lanes);
    std::vector<std::vector<TypeParam>> nothing(
        static_cast<std::size_t>(lanes), std::vector<TypeParam>(static_cast<std::size_t>(keys), -infinity<TypeParam>));
    for (int block = 0; block < 3; ++block) {
      rows.weigh(nothing);
      for (std::size_t r = 0; r < rows.sum.size(); ++r) {
        ASSERT_EQ(rows.sum[r], 0);
        ASSERT_EQ(rows.entropy[r], 0);
      }
    }
    if (keys == 0) return;
    for (auto& row : nothing) row.back() = TypeParam(-1e5);
    rows.weigh(nothing);
    for (std::size_t r = 0; r < rows.sum.size(); ++r) {
      ASSERT_EQ(rows.sum[r], 1);
      ASSERT_EQ(rows.entropy[r], 0);
    }
    const auto some = random_scores<TypeParam>(lanes, keys, 1, 3);
    rows.weigh(some);
    rows.seen = some;
    expect_right(rows);
  });
}

TYPED_TEST(Entropy, IsNanWhereAScoreIsNanOrInfiniteAndNowhereElse) {
  this->for_every_kernel([](Kernel kernel, int lanes, int keys) {
    if (keys == 0) return;
    const auto poisoned = static_cast<std::size_t>(lanes / 2);
    for (const TypeParam poison : {nan<TypeParam>, infinity<TypeParam>}) {
      for (const bool in_first_block : {true, false}) {
        Rows<TypeParam> rows(kernel, lanes);
        for (const bool is_first_block : {true, false}) {
          auto scores = random_scores<TypeParam>(lanes, keys, 1, 3);
          if (is_first_block == in_first_block) scores[poisoned][static_cast<std::size_t>(keys / 2)] = poison;
          rows.weigh(scores);
        }
        ASSERT_TRUE(std::isnan(rows.sum[poisoned]));
        ASSERT_TRUE(std::isnan(rows.entropy[poisoned]));
        rows.seen[poisoned].clear();
        rows.sum[poisoned] = rows.entropy[poisoned] = 0;
        expect_right(rows);
      }
    }
  });
}

TYPED_TEST(Entropy, ChangesNothingElse) {
  this->for_every_kernel([](Kernel kernel, int lanes, int keys) {
    Rows<TypeParam> with(kernel, lanes), without(kernel, lanes);
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      const auto scores = random_scores<TypeParam>(lanes, keys, seed, 8);
      with.weigh(scores);
      without.weigh(scores, false);
      ASSERT_EQ(with.weights, without.weights);
      ASSERT_EQ(with.max, without.max);
      ASSERT_EQ(with.sum, without.sum);
      ASSERT_EQ(with.rescale, without.rescale);
    }
  });
}

TYPED_TEST(Entropy, OfARowDoesNotDependOnItsNeighbours) {
  const auto run = [](Kernel kernel, int lanes, int keys, int alone_lanes) {
    Rows<TypeParam> together(kernel, lanes);
    std::vector<Rows<TypeParam>> alone(static_cast<std::size_t>(lanes), Rows<TypeParam>(kernel, alone_lanes));
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      const auto scores = random_scores<TypeParam>(lanes, keys, seed, 8);
      together.weigh(scores);
      for (std::size_t r = 0; r < alone.size(); ++r) {
        auto others = random_scores<TypeParam>(alone_lanes, keys, 100 + r, 8);
        others[r % others.size()] = scores[r];
        alone[r].weigh(others);
      }
    }
    for (std::size_t r = 0; r < alone.size(); ++r) {
      const std::size_t at = r % static_cast<std::size_t>(alone_lanes);
      ASSERT_EQ(together.sum[r], alone[r].sum[at]);
      ASSERT_EQ(together.entropy[r], alone[r].entropy[at]);
    }
  };
  for_every_block(panel_lanes<TypeParam>, [&](int lanes, int keys) { run(Kernel::panel, lanes, keys, lanes); });
  for_every_block([] { return decode_lanes; },
                  [&](int lanes, int keys) {
                    for (const int alone : decode_lanes) run(Kernel::decode, lanes, keys, alone);
                  });
}

}  // namespace
}  // namespace qkv::test
