// kernels/excluded_test.cpp: what an excluded score becomes.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block.h"
#include "kernels/block_data.h"

namespace qkv::test {
namespace {

using kernels::EditArgs;

// Scores with NaN and infinities among them.
template <class T>
Aligned<T> odd_scores(int lanes, int keys) {
  Random random(1);
  Aligned<T> scores(room<T>(lanes, keys));
  for (T& score : scores) {
    const std::int64_t kind = random.below(10);
    score = kind == 0 ? nan<T> : kind == 1 ? infinity<T> : kind == 2 ? -infinity<T> : static_cast<T>(random.normal());
  }
  return scores;
}

template <class T>
class Excluded : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Excluded, Types);

// Runs the edit for several values of `excluded`, the default among them, and expects expected(score, j, r, excluded).
template <class T, class Expect>
void expect_edit(void (*edit)(const EditArgs<T>&), EditArgs<T> args, int keys, Expect expected) {
  const int lanes = args.lanes;
  const Aligned<T> before = odd_scores<T>(lanes, keys);
  for (const T excluded : {EditArgs<T>().excluded, T(0), T(-5)}) {
    Aligned<T> scores = before;
    args.scores = scores.data();
    args.excluded = excluded;
    edit(args);
    for (int j = 0; j < keys; ++j) {
      for (int r = 0; r < lanes; ++r) {
        const std::size_t at = place(lanes, j, r);
        ASSERT_TRUE(same_number(scores[at], expected(before[at], j, r, excluded))) << "key " << j << ", row " << r;
      }
    }
  }
}

TYPED_TEST(Excluded, IsMinusInfinityUnlessSaid) { EXPECT_EQ(EditArgs<TypeParam>().excluded, -infinity<TypeParam>); }

TYPED_TEST(Excluded, TakesThePlaceOfWhatIsBeyondARowsLimits) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    std::vector<TypeParam> begins, ends;
    for (int r = 0; r < lanes; ++r) {
      begins.push_back(static_cast<TypeParam>(r % 5));
      ends.push_back(static_cast<TypeParam>(keys - r % 3));
    }
    const auto all_begins = repeated(begins), all_ends = repeated(ends);
    EditArgs<TypeParam> args{.scores = nullptr, .lanes = lanes, .first = 0, .last = keys, .row_max = nullptr};
    args.begins = all_begins.data();
    args.ends = all_ends.data();
    expect_edit(kernels::edit_kernels<TypeParam>(current_isa()).limit, args, keys,
                [&](TypeParam score, int j, int r, TypeParam excluded) {
                  const auto row = static_cast<std::size_t>(r);
                  const auto key = static_cast<TypeParam>(j);
                  return key >= begins[row] && key < ends[row] ? score : excluded;
                });
  });
}

TYPED_TEST(Excluded, TakesThePlaceOfWhatMinusInfinityIsAddedTo) {
  for_every_block(all_lanes<TypeParam>, [](int lanes, int keys) {
    Random random(2);
    Aligned<TypeParam> added(room<TypeParam>(lanes, keys));
    for (TypeParam& a : added) a = random.chance(0.3) ? -infinity<TypeParam> : static_cast<TypeParam>(random.normal());
    EditArgs<TypeParam> args{.scores = nullptr, .lanes = lanes, .first = 0, .last = keys, .row_max = nullptr};
    args.added = added.data();
    expect_edit(kernels::edit_kernels<TypeParam>(current_isa()).add, args, keys,
                [&](TypeParam score, int j, int r, TypeParam excluded) {
                  const TypeParam a = added[place(lanes, j, r)];
                  return a == -infinity<TypeParam> ? excluded : score + a;
                });
  });
}

TYPED_TEST(Excluded, CountsForTheRowsMaximum) {
  for_every_block(panel_lanes<TypeParam>, [](int lanes, int keys) {
    Aligned<TypeParam> scores(place(lanes, keys, 0), TypeParam(-7)), row_max(static_cast<std::size_t>(lanes), -100),
        none(static_cast<std::size_t>(lanes), 0);
    EditArgs<TypeParam> args{scores.data(), lanes, 0, keys, row_max.data()};
    args.begins = args.ends = none.data();
    args.excluded = -3;
    kernels::edit_kernels<TypeParam>(current_isa()).limit(args);
    for (const TypeParam max : row_max) ASSERT_EQ(max, keys == 0 ? -100 : -3);
  });
}

}  // namespace
}  // namespace qkv::test
