// kernels/added_test.cpp: what masks add to scores on the way is what the edit adds to them afterwards.
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block.h"
#include "kernels/block_data.h"

namespace qkv::test {
namespace {

using kernels::Added;

constexpr int depth = 5;

template <class T>
Aligned<T> table_of(Added holds, int lanes, int keys) {
  Random random(2);
  Aligned<T> table(room<T>(lanes, keys));
  for (T& added : table) {
    const bool excludes = holds != Added::numbers && random.chance(0.3);
    added = excludes ? -infinity<T> : holds == Added::exclusions ? T(0) : static_cast<T>(random.normal());
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

TYPED_TEST(AddedToScores, IsWhatTheEditAdds) {
  using T = TypeParam;
  for (const Added holds : {Added::numbers, Added::exclusions, Added::both}) {
    for_every_block(panel_lanes<T>, [&](int lanes, int keys) {
      const Aligned<T> queries = rows_of<T>(lanes, 3), key_rows = rows_of<T>(keys, 4);
      const Aligned<T> table = table_of<T>(holds, lanes, keys);
      Aligned<T> scores(table.size()), expected(table.size());
      Aligned<T> max(static_cast<std::size_t>(lanes), -infinity<T>), expected_max = max;
      kernels::ScoreArgs<T> args{queries.data(), key_rows.data(), depth,  depth, lanes, 0,
                                 keys,           expected.data(), nullptr};
      kernels::panel_kernels<T>(current_isa()).score(args);
      kernels::edit_kernels<T>(current_isa()).add({expected.data(), lanes, 0, keys, expected_max.data(), table.data()});
      args.scores = scores.data();
      args.row_max = max.data();
      args.added = table.data();
      args.holds = holds;
      kernels::panel_kernels<T>(current_isa()).score(args);
      for (std::size_t i = 0; i < scores.size(); ++i) ASSERT_TRUE(same_number(scores[i], expected[i])) << i;
      for (std::size_t r = 0; r < max.size(); ++r) ASSERT_EQ(max[r], expected_max[r]) << r;
    });
  }
}

}  // namespace
}  // namespace qkv::test
