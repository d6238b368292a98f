// kernels/added_test.cpp: what masks add to scores on the way is what the edit adds to them afterwards.
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block.h"
#include "kernels/block_data.h"

namespace qkv::test {
namespace {

constexpr int depth = 5;

// What a table holds: finite numbers, -inf and 0, or all of them.
enum class Holds { numbers, exclusions, both };

template <class T>
Aligned<T> table_of(Holds holds, int lanes, int keys) {
  Random random(2);
  Aligned<T> table(room<T>(lanes, keys));
  for (T& added : table) {
    const bool excludes = holds != Holds::numbers && random.chance(0.3);
    added = excludes ? -infinity<T> : holds == Holds::exclusions ? T(0) : static_cast<T>(random.normal());
  }
  return table;
}

// Some of them NaN or infinite.
template <class T>
Aligned<T> rows_of(int rows, std::uint64_t seed) {
  Random random(seed);
  Aligned<T> numbers(static_cast<std::size_t>(rows * depth));
  for (T& x : numbers) {
    const std::int64_t kind = random.below(60);
    x = kind == 0 ? nan<T> : kind == 1 ? infinity<T> : static_cast<T>(random.normal());
  }
  return numbers;
}

template <class T>
class AddedToScores : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AddedToScores, Types);

// Scores with something done to them on the way, said by set(args), and the same done by the edit.
template <class T, class Set>
void expect_what_the_edit_does(const Aligned<T>& table, int lanes, int keys, Set set) {
  const Aligned<T> queries = rows_of<T>(lanes, 3), key_rows = rows_of<T>(keys, 4);
  Aligned<T> scores(table.size()), expected(table.size());
  Aligned<T> max(static_cast<std::size_t>(lanes), -infinity<T>), expected_max = max;
  kernels::ScoreArgs<T> args{queries.data(), key_rows.data(), depth, depth, lanes, 0, keys, expected.data(), nullptr};
  kernels::panel_kernels<T>(current_isa()).score(args);
  kernels::edit_kernels<T>(current_isa()).add({expected.data(), lanes, 0, keys, expected_max.data(), table.data()});
  args.scores = scores.data();
  args.row_max = max.data();
  set(args);
  kernels::panel_kernels<T>(current_isa()).score(args);
  for (std::size_t i = 0; i < scores.size(); ++i) ASSERT_TRUE(same_number(scores[i], expected[i])) << i;
  for (std::size_t r = 0; r < max.size(); ++r) ASSERT_EQ(max[r], expected_max[r]) << r;
}

TYPED_TEST(AddedToScores, IsWhatTheEditAdds) {
  using T = TypeParam;
  for (const Holds holds : {Holds::numbers, Holds::both}) {
    for_every_block(panel_lanes<T>, [&](int lanes, int keys) {
      const Aligned<T> table = table_of<T>(holds, lanes, keys);
      expect_what_the_edit_does(table, lanes, keys, [&](kernels::ScoreArgs<T>& args) {
        args.added = table.data();
        args.added_is_finite = holds == Holds::numbers;
      });
    });
  }
}

TYPED_TEST(AddedToScores, BitsExcludeAsMinusInfinityDoes) {
  using T = TypeParam;
  for_every_block(panel_lanes<T>, [](int lanes, int keys) {
    const Aligned<T> table = table_of<T>(Holds::exclusions, lanes, keys);
    Aligned<kernels::RowBits> bits(static_cast<std::size_t>(keys), 0);
    for (int i = 0; i < keys * lanes; ++i) {
      const bool excluded = table[static_cast<std::size_t>(i)] == -infinity<T>;
      bits[static_cast<std::size_t>(i / lanes)] |= kernels::RowBits{excluded} << (i % lanes);
    }
    expect_what_the_edit_does(table, lanes, keys, [&](kernels::ScoreArgs<T>& args) { args.excluded = bits.data(); });
  });
}

}  // namespace
}  // namespace qkv::test
