// kernels/part_of_panel_test.cpp: some vectors of a panel are scored as the whole panel is.
#include <cstddef>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "kernels/block_data.h"

namespace qkv::test {
namespace {

template <class T>
class PartOfPanel : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(PartOfPanel, Types);

TYPED_TEST(PartOfPanel, HasTheBitsOfTheWholeAndLeavesTheRestAlone) {
  using T = TypeParam;
  on_every_isa([] {
    const auto& table = kernels::panel_kernels<T>(current_isa());
    constexpr int depth = 37, keys = 29;
    const int lanes = table.max_vectors * table.vector;
    const auto queries = random_numbers<T>(depth * lanes, 1), key_rows = random_numbers<T>(keys * depth, 2);
    const auto size = static_cast<std::size_t>(keys * lanes);
    Aligned<T> whole(size, T(0));
    table.score({queries.data(), key_rows.data(), depth, depth, lanes, 0, keys, whole.data(), nullptr});
    for (int from = 0; from < lanes; from += table.vector) {
      for (int to = from + table.vector; to <= lanes; to += table.vector) {
        for (const auto& [first, last] : {std::pair{0, keys}, std::pair{3, 20}}) {
          SCOPED_TRACE("lanes " + std::to_string(from) + " to " + std::to_string(to));
          Aligned<T> part(size, T(7));
          kernels::ScoreArgs<T> args{queries.data() + from, key_rows.data(), depth, depth, to - from, first, last,
                                     part.data() + from,    nullptr};
          args.panel_lanes = lanes;
          table.score(args);
          for (int j = 0; j < keys; ++j) {
            for (int r = 0; r < lanes; ++r) {
              const bool scored = first <= j && j < last && from <= r && r < to;
              ASSERT_EQ(part[place(lanes, j, r)], scored ? whole[place(lanes, j, r)] : T(7)) << j << ", " << r;
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
