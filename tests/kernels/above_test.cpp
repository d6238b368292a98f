// kernels/above_test.cpp: finding the scores that are above their rows' thresholds.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block.h"
#include "kernels/block_data.h"

namespace qkv::test {
namespace {

template <class T>
std::vector<std::int32_t> above(const Aligned<T>& scores, int lanes, int first, int last, const std::vector<T>& rows) {
  const Aligned<T> thresholds = repeated(rows);
  const auto most = static_cast<std::size_t>((last - first) * lanes);
  Aligned<std::int32_t> places(most, -1);
  const int found = kernels::best_kernels<T>(current_isa())
                        .above({scores.data(), lanes, first, last, thresholds.data(), places.data()});
  for (std::size_t i = static_cast<std::size_t>(found); i < most; ++i) EXPECT_EQ(places[i], -1);
  return {places.begin(), places.begin() + found};
}

template <class T>
std::vector<std::int32_t> naively_above(const Aligned<T>& scores, int lanes, int first, int last,
                                        const std::vector<T>& rows) {
  std::vector<std::int32_t> places;
  for (int j = first; j < last; ++j) {
    for (int r = 0; r < lanes; ++r) {
      if (!(scores[place(lanes, j, r)] <= rows[static_cast<std::size_t>(r)])) places.push_back(j * lanes + r);
    }
  }
  return places;
}

// Normal numbers, also beyond the last key; every twentieth is -inf.
template <class T>
Aligned<T> random_scores(int lanes, int keys) {
  Random random(1);
  Aligned<T> scores(room<T>(lanes, keys));
  for (T& score : scores) score = random.chance(0.05) ? -infinity<T> : static_cast<T>(random.normal());
  return scores;
}

template <class T>
class Above : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Above, Types);

TYPED_TEST(Above, FindsWhatIsAboveInRisingOrder) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    const auto scores = random_scores<TypeParam>(lanes, keys);
    Random random(2);
    for (const double level : {-infinity<double>, -10.0, 0.0, 1.0, 2.5, 10.0, infinity<double>}) {
      std::vector<TypeParam> rows;
      for (int r = 0; r < lanes; ++r) rows.push_back(static_cast<TypeParam>(level + 0.5 * random.normal()));
      ASSERT_EQ(above(scores, lanes, 0, keys, rows), naively_above(scores, lanes, 0, keys, rows)) << level;
    }
  });
}

TYPED_TEST(Above, KeysOutsideTheRangeDoNotCount) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    const auto scores = random_scores<TypeParam>(lanes, keys);
    const std::vector<TypeParam> rows(static_cast<std::size_t>(lanes), TypeParam(0.5));
    for (int first = 0; first < keys; first += 1 + first / 4) {
      for (int last = first; last <= keys; last += 1 + (last - first) / 3) {
        ASSERT_EQ(above(scores, lanes, first, last, rows), naively_above(scores, lanes, first, last, rows))
            << first << " to " << last;
      }
    }
  });
}

TYPED_TEST(Above, NanIsAboveEverythingAndAnEqualScoreIsNot) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    for (const TypeParam level : {TypeParam(0), infinity<TypeParam>, -infinity<TypeParam>}) {
      Aligned<TypeParam> scores(room<TypeParam>(lanes, keys), level);
      const std::vector<TypeParam> rows(static_cast<std::size_t>(lanes), level);
      ASSERT_TRUE(above(scores, lanes, 0, keys, rows).empty());
      if (keys == 0) continue;
      const auto poisoned = static_cast<std::int32_t>(place(lanes, keys - 1, lanes / 2));
      scores[static_cast<std::size_t>(poisoned)] = nan<TypeParam>;
      ASSERT_EQ(above(scores, lanes, 0, keys, rows), std::vector{poisoned});
    }
    // Whatever a row's scores are, none is <= NaN.
    std::vector<TypeParam> rows(static_cast<std::size_t>(lanes), infinity<TypeParam>);
    rows.back() = nan<TypeParam>;
    const auto scores = random_scores<TypeParam>(lanes, keys);
    ASSERT_EQ(above(scores, lanes, 0, keys, rows), naively_above(scores, lanes, 0, keys, rows));
  });
}

}  // namespace
}  // namespace qkv::test
