// kernels/keep_test.cpp: the few best scores of each lane, block after block.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block.h"
#include "kernels/block_data.h"

namespace qkv::test {
namespace {

constexpr std::int64_t first_of_all = 1000;

// The slots of all lanes, and the scratch of a block.
template <class T>
struct Slots {
  int lanes, vector, all, stride;
  Aligned<T> best;
  Aligned<kernels::KeyIndex<T>> indices;
  std::int64_t next_key = first_of_all;

  Slots(int of_lanes, int rows)
      : lanes(of_lanes),
        vector(kernels::panel_kernels<T>(current_isa()).vector),
        all(std::max(lanes, vector)),
        stride(all + vector),
        best(static_cast<std::size_t>(kernels::best_slots * stride)),
        indices(best.size(), -1) {
    for (std::size_t i = 0; i < best.size(); ++i) {
      const int lane = static_cast<int>(i) % stride;
      best[i] = lane < all && lane % lanes < rows ? -infinity<T> : infinity<T>;
    }
  }
  explicit Slots(int of_lanes) : Slots(of_lanes, of_lanes) {}

  void add(Aligned<T> scores, int keys, int kept) {
    const auto vectors = [&](int count) { return static_cast<std::size_t>(count * vector); };
    Aligned<kernels::MarkWord<T>> marks(vectors(keys + 1));
    Aligned<T> queue(vectors(keys + 3));
    Aligned<kernels::KeyIndex<T>> numbers(vectors(keys + 3));
    kernels::best_kernels<T>(current_isa())
        .keep({scores.data(), lanes, keys, next_key, kept, best.data(), indices.data(), stride, marks.data(),
               queue.data(), numbers.data()});
    next_key += keys;
  }

  T score(int lane, int i) const { return best[place(stride, i, lane)]; }
  std::int64_t index(int lane, int i) const { return indices[place(stride, i, lane)]; }
};

// The same, one score after the other.
template <class T>
struct NaiveSlots {
  struct Entry {
    T score;
    std::int64_t index;
  };
  int lanes, keys;  // of a block's row; of a vector
  std::vector<std::vector<Entry>> entries;
  std::int64_t next_key = first_of_all;

  explicit NaiveSlots(const Slots<T>& slots)
      : lanes(slots.lanes), keys(slots.all / slots.lanes), entries(static_cast<std::size_t>(slots.all)) {}

  void add(const Aligned<T>& scores, int count) {
    for (int j = 0; j < count; ++j) {
      for (int r = 0; r < lanes; ++r) {
        const T score = scores[place(lanes, j, r)];
        if (score != -infinity<T>)
          entries[static_cast<std::size_t>(j % keys * lanes + r)].push_back({score, next_key + j});
      }
    }
    next_key += count;
    for (auto& lane : entries) {
      std::stable_sort(lane.begin(), lane.end(), [](const Entry& a, const Entry& b) { return a.score > b.score; });
    }
  }
};

template <class T>
void expect_same(const Slots<T>& got, const NaiveSlots<T>& right, int kept) {
  for (int lane = 0; lane < got.all; ++lane) {
    const auto& entries = right.entries[static_cast<std::size_t>(lane)];
    for (int i = 0; i < kept; ++i) {
      SCOPED_TRACE("lane " + std::to_string(lane) + ", slot " + std::to_string(i));
      if (static_cast<std::size_t>(i) >= entries.size()) {
        ASSERT_EQ(got.score(lane, i), -infinity<T>);
        continue;
      }
      ASSERT_TRUE(same_number(got.score(lane, i), entries[static_cast<std::size_t>(i)].score));
      ASSERT_EQ(got.index(lane, i), entries[static_cast<std::size_t>(i)].index);
    }
  }
}

inline const std::vector<int> some_kept = {1, 2, 5, 7, 8};

// Rows that are whole vectors, and fewer.
template <class T>
std::vector<int> powers_of_two() {
  std::vector<int> lanes = decode_lanes;
  const int vector = kernels::panel_kernels<T>(current_isa()).vector;
  for (const int count : {vector, 2 * vector, 4 * vector}) lanes.push_back(count);
  return lanes;
}

// Feeds blocks of so many keys, whose scores make(j, r) gives, j counted over all blocks.
template <class T, class Make>
void check(int lanes, int keys, Make make) {
  for (const int kept : some_kept) {
    Slots<T> got(lanes);
    NaiveSlots<T> right(got);
    int first = 0;
    for (const int count : {keys, 1, keys, keys}) {
      Aligned<T> scores(room<T>(lanes, count), infinity<T>);  // also beyond the last key
      for (int j = 0; j < count; ++j) {
        for (int r = 0; r < lanes; ++r) scores[place(lanes, j, r)] = make(first + j, r);
      }
      first += count;
      got.add(scores, count, kept);
      right.add(scores, count);
      SCOPED_TRACE("kept " + std::to_string(kept) + ", after " + std::to_string(first) + " keys");
      expect_same(got, right, kept);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

template <class T>
class Keep : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Keep, Types);

TYPED_TEST(Keep, KeepsTheBestOfRandomScores) {
  for_every_block(powers_of_two<TypeParam>, [](int lanes, int keys) {
    Random random(1);
    check<TypeParam>(lanes, keys, [&](int, int) { return static_cast<TypeParam>(random.normal()); });
  });
}

TYPED_TEST(Keep, EarlierKeysComeFirstAmongEquals) {
  for_every_block(powers_of_two<TypeParam>, [](int lanes, int keys) {
    Random random(2);
    check<TypeParam>(lanes, keys, [&](int, int) { return static_cast<TypeParam>(std::round(2 * random.normal())); });
    check<TypeParam>(lanes, keys, [&](int, int r) { return static_cast<TypeParam>(r % 3 - 1); });
    // Both zeros are equal, and stay what they are.
    check<TypeParam>(lanes, keys, [&](int, int) { return random.chance(0.5) ? TypeParam(0) : -TypeParam(0); });
  });
}

TYPED_TEST(Keep, ScoresMayRiseOrFallFromKeyToKey) {
  for_every_block(powers_of_two<TypeParam>, [](int lanes, int keys) {
    check<TypeParam>(lanes, keys, [&](int j, int r) { return static_cast<TypeParam>(r % 2 == 0 ? j : -j); });
    check<TypeParam>(lanes, keys, [&](int j, int r) { return static_cast<TypeParam>(j + r) * TypeParam(1e-30); });
    check<TypeParam>(lanes, keys,
                     [&](int j, int) { return std::numeric_limits<TypeParam>::denorm_min() * TypeParam(j); });
  });
}

TYPED_TEST(Keep, MinusInfinityIsNeverAmongTheBestAndInfinityMayBe) {
  for_every_block(powers_of_two<TypeParam>, [](int lanes, int keys) {
    Random random(3);
    for (const double excluded : {0.05, 0.95, 1.0}) {
      check<TypeParam>(lanes, keys, [&](int, int) {
        return random.chance(excluded) ? -infinity<TypeParam> : static_cast<TypeParam>(random.normal());
      });
    }
    check<TypeParam>(lanes, keys, [&](int j, int r) {
      return (j + r) % 5 == 0   ? infinity<TypeParam>
             : (j + r) % 7 == 0 ? -infinity<TypeParam>
                                : std::numeric_limits<TypeParam>::lowest();
    });
  });
}

TYPED_TEST(Keep, NanTakesTheFirstSlotOfItsLaneForGood) {
  for_every_block(powers_of_two<TypeParam>, [](int lanes, int keys) {
    if (keys == 0) return;
    for (const int kept : some_kept) {
      for (const int poisoned : {0, keys / 2, keys - 1}) {
        Slots<TypeParam> got(lanes);
        NaiveSlots<TypeParam> right(got);
        Random random(4);
        const int row = lanes / 2, lane = poisoned % (got.all / lanes) * lanes + row;
        for (int block = 0; block < 3; ++block) {
          Aligned<TypeParam> scores(room<TypeParam>(lanes, keys));
          for (TypeParam& score : scores) score = static_cast<TypeParam>(random.normal());
          right.add(scores, keys);
          if (block == 1) scores[place(lanes, poisoned, row)] = nan<TypeParam>;
          got.add(scores, keys, kept);
          if (block == 0) continue;
          ASSERT_TRUE(std::isnan(got.score(lane, 0)));
          // The others do not notice.
          right.entries[static_cast<std::size_t>(lane)].clear();
          Slots<TypeParam> others = got;
          for (int i = 0; i < kernels::best_slots; ++i) others.best[place(got.stride, i, lane)] = -infinity<TypeParam>;
          expect_same(others, right, kept);
        }
      }
    }
  });
}

TYPED_TEST(Keep, NothingEntersLanesBeyondTheRows) {
  for_every_block(powers_of_two<TypeParam>, [](int lanes, int keys) {
    const int rows = std::max(1, lanes - 1);
    Slots<TypeParam> got(lanes, rows);
    Random random(5);
    for (int block = 0; block < 3; ++block) {
      Aligned<TypeParam> scores(room<TypeParam>(lanes, keys));
      for (TypeParam& score : scores) score = static_cast<TypeParam>(random.normal());
      got.add(scores, keys, 8);
    }
    for (int lane = 0; lane < got.stride; ++lane) {
      if (lane < got.all && lane % lanes < rows) continue;
      for (int i = 0; i < kernels::best_slots; ++i) {
        ASSERT_EQ(got.score(lane, i), infinity<TypeParam>);
        ASSERT_EQ(got.index(lane, i), -1);
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
