// attention/unmapped_test.cpp: records that are excluded for all queries are not read: here they are not even mapped.
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "support/close.h"
#include "support/isas.h"
#include "support/pages.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

// The answer from memory where the excluded rows are unmapped is the answer from whole memory.
void expect_unread(std::int64_t Tq, std::int64_t Tk, const Mask& mask, const std::vector<std::int64_t>& excluded) {
  for (const std::int64_t D : {16, 17, 3}) {
    SCOPED_TRACE("Tq " + std::to_string(Tq) + ", D " + std::to_string(D));
    const Tensor q = random_tensor({1, 1, Tq, D}, 1), k = random_tensor({1, 1, Tk, D}, 2),
                 v = random_tensor({1, 1, Tk, D}, 3);
    RowsOnPages keys(k), values(v);
    for (const std::int64_t row : excluded) {
      keys.forbid(row);
      values.forbid(row);
    }
    const AttendOptions options = {
        .mask = mask, .want_lse = true, .want_weights = true, .want_scores = ScoreStage::biased};
    const Attended whole = attend(q, k, v, options), cut = attend(q, keys.view(), values.view(), options);
    EXPECT_TRUE(same_bits(whole.out, cut.out));
    EXPECT_TRUE(same_bits(whole.lse, cut.lse));
    EXPECT_TRUE(same_bits(whole.weights, cut.weights));
    EXPECT_TRUE(same_bits(whole.scores, cut.scores));
  }
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> all;
  for (std::int64_t j = first; j < last; ++j) all.push_back(j);
  return all;
}

constexpr std::int64_t few_and_many[] = {1, 4, 5, 30};

TEST(Unmapped, RecordsBeyondTheLengthAreNotRead) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const std::int64_t length : {0, 1, 7, 33, 64}) {
        const Tensor lens = Tensor::of<std::int64_t>({length}, {1});
        expect_unread(Tq, 70, lengths(lens), range(length, 70));
      }
    }
  });
}

TEST(Unmapped, RecordsBeyondTheLastQueryAreNotRead) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      expect_unread(Tq, 70, causal(top_left()), range(Tq, 70));
      expect_unread(Tq, 70, causal(offset(11)), range(Tq + 11, 70));
    }
  });
}

TEST(Unmapped, RecordsOutsideTheWindowAreNotRead) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      std::vector<std::int64_t> outside = range(0, 20 - 3);
      for (const std::int64_t row : range(20 + Tq, 70)) outside.push_back(row);
      expect_unread(Tq, 70, window(3, 0, offset(20)), outside);
    }
  });
}

TEST(Unmapped, RecordsThatNoQueryKeepsAreNotRead) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const std::int64_t Tk = 70;
      Tensor kept({1, Tk}, Dtype::boolean), dropped({1, Tk}, Dtype::boolean), added({1, Tk});
      std::vector<std::int64_t> excluded;
      Random random(4);
      for (std::int64_t j = 0; j < Tk; ++j) {
        const bool seen = random.chance(0.6);
        kept.values<bool>()[static_cast<std::size_t>(j)] = seen;
        dropped.values<bool>()[static_cast<std::size_t>(j)] = !seen;
        added.values<float>()[static_cast<std::size_t>(j)] = seen ? 0 : -std::numeric_limits<float>::infinity();
        if (!seen) excluded.push_back(j);
      }
      expect_unread(Tq, Tk, keep(kept), excluded);
      expect_unread(Tq, Tk, drop(dropped), excluded);
      expect_unread(Tq, Tk, keep_keys(kept), excluded);
      expect_unread(Tq, Tk, bias(added), excluded);
    }
  });
}

TEST(Unmapped, RecordsOfCellsThatNobodyAttendsAreNotRead) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      Tensor cells({1, 7}, Dtype::boolean);
      cells.values<bool>()[1] = cells.values<bool>()[5] = true;
      std::vector<std::int64_t> excluded = range(0, 10);
      for (const std::int64_t row : range(20, 50)) excluded.push_back(row);
      for (const std::int64_t row : range(60, 70)) excluded.push_back(row);
      expect_unread(Tq, 70, block_mask(cells, Tq, 10), excluded);
    }
  });
}

TEST(Unmapped, RecordsThatYourFunctionKeepsForNobodyAreNotRead) {
  on_every_isa([] {
    const auto first_twenty = [](const KeepBlock& block) {
      for (std::int64_t j = 0; j < block.keys; ++j) {
        for (std::int64_t i = 0; i < block.queries; ++i) block.at(i, j) = block.first_key + j < 20;
      }
      return Kept::some;
    };
    for (const std::int64_t Tq : few_and_many) expect_unread(Tq, 70, keep_by(first_twenty), range(20, 70));
  });
}

// Dense rows that end where the mapped memory ends: vector loads must not run over the last row.
TEST(Unmapped, NothingIsReadBehindTheLastElement) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::bfloat16}) {
      for (const std::int64_t D : {1, 3, 8, 15, 17, 64}) {
        for (const std::int64_t Tq : few_and_many) {
          const std::int64_t Tk = 13;
          const auto at_end = [&](const Pages& pages, const Tensor& x) {
            const std::size_t bytes = static_cast<std::size_t>(x.elements()) * size_of(dtype);
            std::byte* first = pages.data() + 4 * Pages::size() - bytes;
            std::memcpy(first, x.view().data(), bytes);
            return View(first, dtype, x.shape());
          };
          const Pages a(4), b(4), c(4);
          const Tensor q = random_tensor({Tq, D}, 1, dtype), k = random_tensor({Tk, D}, 2, dtype),
                       v = random_tensor({Tk, D}, 3, dtype);
          EXPECT_TRUE(same_bits(attend(at_end(a, q), at_end(b, k), at_end(c, v)).out, attend(q, k, v).out));
        }
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
