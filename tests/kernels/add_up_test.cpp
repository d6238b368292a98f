// kernels/add_up_test.cpp: weights that are the scores themselves: their sums and entropies.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block.h"
#include "kernels/block_data.h"

namespace qkv::test {
namespace {

template <class T>
struct Sums {
  Aligned<T> max, sum, rescale, entropy;
  explicit Sums(int lanes) {
    const auto size = static_cast<std::size_t>(lanes);
    max.assign(size, T(0));
    sum.assign(size, T(0));
    rescale.assign(size, nan<T>);
    entropy.assign(size, T(0));
  }
};

// weight(r, j) for the block's weights; whatever is beyond the last key is NaN.
template <class T, class Weight>
void add_up(Sums<T>& sums, int lanes, int keys, Weight weight, bool with_entropy = true) {
  Aligned<T> block(room<T>(lanes, keys), nan<T>);
  for (int j = 0; j < keys; ++j) {
    for (int r = 0; r < lanes; ++r) block[place(lanes, j, r)] = weight(r, j);
  }
  const Aligned<T> before = block;
  kernels::weigh_kernels<T>(current_isa())
      .add_up({block.data(), lanes, keys, nullptr, sums.max.data(), sums.sum.data(), sums.rescale.data(),
               with_entropy ? sums.entropy.data() : nullptr});
  for (int j = 0; j < keys; ++j) {
    for (int r = 0; r < lanes; ++r) {
      ASSERT_TRUE(same_number(block[place(lanes, j, r)], before[place(lanes, j, r)])) << "a weight was changed";
    }
  }
}

// A number for row r and key j that does not depend on the block's shape. Every seventh is 0, some are 1, the others
// from 2^-20 to 4.
template <class T>
T positive(int r, int j, std::uint64_t seed) {
  Random random(seed * 1'000'000 + static_cast<std::uint64_t>(r * 1000 + j));
  if (random.chance(1.0 / 7)) return random.chance(0.5) ? T(0) : -T(0);
  if (random.chance(0.05)) return T(1);
  return static_cast<T>(std::exp2(-20 + 22 * random.uniform()));
}

struct Expected {
  double sum = 0, sum_of_sizes = 0, entropy = 0, entropy_of_sizes = 0;

  void add(double weight) {
    sum += weight;
    sum_of_sizes += std::abs(weight);
    const double term = weight == 0 ? 0 : weight * std::log2(std::abs(weight));
    entropy += term;
    entropy_of_sizes += std::abs(term);
  }
};

template <class T>
class AddUp : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AddUp, Types);

TYPED_TEST(AddUp, SumsAreRightOverSeveralBlocks) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    Sums<TypeParam> sums(lanes);
    std::vector<Expected> expected(static_cast<std::size_t>(lanes));
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      add_up(sums, lanes, keys, [&](int r, int j) { return positive<TypeParam>(r, j, seed); });
      for (int r = 0; r < lanes; ++r) {
        const auto row = static_cast<std::size_t>(r);
        for (int j = 0; j < keys; ++j) expected[row].add(static_cast<double>(positive<TypeParam>(r, j, seed)));
        // Chains of keys / 16 additions, four to fold them and one a block, each of which rounds by half an epsilon of
        // at most the whole; a logarithm is off by 2 epsilon more.
        const double tolerance = (keys / 16.0 + 4 + 3) / 2 * epsilon<TypeParam>;
        ASSERT_NEAR(static_cast<double>(sums.sum[row]), expected[row].sum, tolerance * expected[row].sum_of_sizes);
        ASSERT_NEAR(static_cast<double>(sums.entropy[row]), expected[row].entropy,
                    (tolerance + 2 * epsilon<TypeParam>)*expected[row].entropy_of_sizes);
        ASSERT_EQ(sums.rescale[row], 1);
        ASSERT_EQ(sums.max[row], sums.sum[row]);  // positive weights are their magnitudes, bit for bit
      }
    }
  });
}

TYPED_TEST(AddUp, MagnitudesTellWeightsOfBothSigns) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    if (keys == 0) return;
    Sums<TypeParam> sums(lanes), without(lanes);
    const auto weight = [&](int r, int j) {
      return (r + j) % 3 == 0 ? -positive<TypeParam>(r, j, 1) - TypeParam(0.5) : positive<TypeParam>(r, j, 1);
    };
    add_up(sums, lanes, keys, weight);
    add_up(without, lanes, keys, weight, false);
    for (int r = 0; r < lanes; ++r) {
      Expected expected;
      bool has_negative = false, has_positive = false;
      for (int j = 0; j < keys; ++j) {
        expected.add(static_cast<double>(weight(r, j)));
        has_negative = has_negative || weight(r, j) < 0;
        has_positive = has_positive || weight(r, j) > 0;
      }
      const auto row = static_cast<std::size_t>(r);
      const double tolerance = (keys / 16.0 + 4 + 1) / 2 * epsilon<TypeParam>;
      ASSERT_NEAR(static_cast<double>(sums.sum[row]), expected.sum, tolerance * expected.sum_of_sizes);
      ASSERT_EQ(sums.sum[row], without.sum[row]);
      ASSERT_EQ(sums.max[row] == std::abs(sums.sum[row]), !(has_negative && has_positive));
      ASSERT_NEAR(static_cast<double>(sums.entropy[row]), expected.entropy,
                  (tolerance + 2 * epsilon<TypeParam>)*expected.entropy_of_sizes);
      ASSERT_EQ(without.entropy[row], 0);
      ASSERT_EQ(without.rescale[row], 1);
    }
  });
}

TYPED_TEST(AddUp, NanAndInfinityReachTheirRowAndNoOther) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    if (keys == 0) return;
    for (const TypeParam poison : {nan<TypeParam>, infinity<TypeParam>}) {
      Sums<TypeParam> clean(lanes), poisoned(lanes);
      add_up(clean, lanes, keys, [](int r, int j) { return positive<TypeParam>(r, j, 1); });
      add_up(poisoned, lanes, keys,
             [&](int r, int j) { return r == lanes / 2 && j == keys - 1 ? poison : positive<TypeParam>(r, j, 1); });
      for (int r = 0; r < lanes; ++r) {
        const auto row = static_cast<std::size_t>(r);
        const bool is_clean = r != lanes / 2;
        ASSERT_TRUE(same_number(poisoned.sum[row], is_clean ? clean.sum[row] : poison));
        ASSERT_TRUE(same_number(poisoned.entropy[row], is_clean ? clean.entropy[row] : poison));
      }
    }
  });
}

TYPED_TEST(AddUp, ARowOfZerosHasNeither) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    Sums<TypeParam> sums(lanes);
    add_up(sums, lanes, keys, [](int r, int j) { return (r + j) % 2 == 0 ? TypeParam(0) : -TypeParam(0); });
    for (const TypeParam sum : sums.sum) ASSERT_EQ(sum, 0);
    for (const TypeParam entropy : sums.entropy) ASSERT_EQ(entropy, 0);
  });
}

TYPED_TEST(AddUp, SubnormalWeightsCountForNextToNothing) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    using Limits = std::numeric_limits<TypeParam>;
    Sums<TypeParam> sums(lanes);
    add_up(sums, lanes, keys, [](int r, int) { return r % 2 == 0 ? Limits::denorm_min() : Limits::min() / 3; });
    for (const TypeParam entropy : sums.entropy)
      ASSERT_LE(std::abs(entropy), static_cast<TypeParam>(keys * 1100) * Limits::min());
  });
}

TYPED_TEST(AddUp, BitsOfARowDoNotDependOnTheLayout) {
  on_every_isa([] {
    for (const int keys : key_counts) {
      Sums<TypeParam> alone(1);
      add_up(alone, 1, keys, [](int, int j) { return positive<TypeParam>(0, j, 1); });
      for (const int lanes : all_lanes<TypeParam>()) {
        Sums<TypeParam> sums(lanes);
        const int row = lanes - 1;
        add_up(sums, lanes, keys, [&](int r, int j) { return positive<TypeParam>(r - row, j, 1); });
        ASSERT_EQ(sums.sum.back(), alone.sum[0]) << lanes << " lanes, " << keys << " keys";
        ASSERT_EQ(sums.entropy.back(), alone.entropy[0]) << lanes << " lanes, " << keys << " keys";
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
