// kernels/drop_test.cpp: dropout of weights.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "kernels/block.h"
#include "kernels/block_data.h"

namespace qkv::test {
namespace {

template <class T>
struct Dropout {
  int lanes, rows, keys;
  std::int64_t first_key = 0;
  std::uint32_t threshold = 0x40000000;
  T factor = T(1.25);

  std::vector<std::uint64_t> row_keys() const {
    std::vector<std::uint64_t> all;
    for (int r = 0; r < rows; ++r) all.push_back(random_key(7, r));
    return all;
  }

  void run(Aligned<T>& weights) const {
    const auto keys_of_rows = row_keys();
    kernels::weigh_kernels<T>(current_isa())
        .drop({weights.data(), lanes, rows, keys, first_key, keys_of_rows.data(), threshold, factor});
  }

  // Exactly what base/random.h says, and nothing beyond the rows.
  void expect_right() const {
    Random random(1);
    Aligned<T> weights(room<T>(lanes, keys));
    for (T& weight : weights) weight = static_cast<T>(random.normal());
    const Aligned<T> before = weights;
    run(weights);
    const auto keys_of_rows = row_keys();
    for (int j = 0; j < keys; ++j) {
      for (int r = 0; r < lanes; ++r) {
        T expected = before[place(lanes, j, r)];
        if (r < rows) {
          const bool is_dropped = random_bits(keys_of_rows[static_cast<std::size_t>(r)], first_key + j) < threshold;
          expected = is_dropped ? T(0) : expected * factor;
        }
        ASSERT_TRUE(same_number(weights[place(lanes, j, r)], expected)) << "key " << j << ", row " << r;
      }
    }
  }
};

template <class T>
class Drop : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Drop, Types);

TYPED_TEST(Drop, IsWhatTheRandomBitsSay) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    for (const std::uint32_t threshold : {0x1u, 0x40000000u, 0x7fffffffu, 0x80000000u, 0x80000001u, 0xe0000000u}) {
      Dropout<TypeParam>{.lanes = lanes, .rows = lanes, .keys = keys, .threshold = threshold}.expect_right();
    }
  });
}

TYPED_TEST(Drop, BitsThatAreTheThresholdAreKept) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    Dropout<TypeParam> dropout{.lanes = lanes, .rows = lanes, .keys = keys};
    for (const int j : {0, 1, 16}) {
      dropout.threshold = random_bits(dropout.row_keys().back(), j);
      dropout.expect_right();
      ++dropout.threshold;
      dropout.expect_right();
    }
  });
}

TYPED_TEST(Drop, CountsKeysFromTheFirstOneModuloTwoToThe32) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    for (const std::int64_t first_key : {1ll, 192ll, 0x7ffffff0ll, 0xfffffff0ll, 0x1'0000'0000ll, 0x123'4567'89abll}) {
      Dropout<TypeParam>{.lanes = lanes, .rows = lanes, .keys = keys, .first_key = first_key}.expect_right();
    }
  });
}

TYPED_TEST(Drop, LeavesLanesBeyondTheRowsAlone) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    for (int rows = 1; rows < lanes; ++rows) {
      Dropout<TypeParam>{.lanes = lanes, .rows = rows, .keys = keys}.expect_right();
    }
  });
}

TYPED_TEST(Drop, AThresholdOfZeroKeepsAllAndTheLargestNextToNone) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    Aligned<TypeParam> weights(room<TypeParam>(lanes, keys), TypeParam(3));
    Dropout<TypeParam>{.lanes = lanes, .rows = lanes, .keys = keys, .threshold = 0, .factor = 2}.run(weights);
    for (std::size_t i = 0; i < place(lanes, keys, 0); ++i) ASSERT_EQ(weights[i], 6);
    Dropout<TypeParam>{.lanes = lanes, .rows = lanes, .keys = keys, .threshold = 0xffffffffu}.run(weights);
    for (std::size_t i = 0; i < place(lanes, keys, 0); ++i) ASSERT_EQ(weights[i], 0);
  });
}

TYPED_TEST(Drop, ADroppedNanIsZeroAndAKeptOneStays) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    const Dropout<TypeParam> dropout{.lanes = lanes, .rows = lanes, .keys = keys};
    Aligned<TypeParam> ones(room<TypeParam>(lanes, keys), TypeParam(1)), weights = ones;
    weights.assign(weights.size(), nan<TypeParam>);
    dropout.run(ones);
    dropout.run(weights);
    for (std::size_t i = 0; i < place(lanes, keys, 0); ++i) {
      ASSERT_TRUE(ones[i] == 0 ? weights[i] == 0 : std::isnan(weights[i]));
    }
  });
}

}  // namespace
}  // namespace qkv::test
