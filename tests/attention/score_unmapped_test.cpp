// attention/score_unmapped_test.cpp: records that are excluded for all queries are not read, whatever the score needs
// of its keys beforehand.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "support/close.h"
#include "support/isas.h"
#include "support/pages.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr std::int64_t few_and_many[] = {1, 4, 5, 30};

// The answer from memory where the excluded rows are unmapped is the answer from whole memory.
void expect_unread(std::int64_t Tq, const Mask& mask, const std::vector<std::int64_t>& excluded) {
  for (const Score::Kind score : all_score_kinds) {
    for (const Weigh& weigh : all_weighings()) {
      const Problem p(
          {.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = 70, .D = 7, .Dv = 5, .score = score, .Dk = 9, .weigh = weigh});
      SCOPED_TRACE(std::string(score_name(score)) + " and " + weigh_name(weigh) + ", Tq " + std::to_string(Tq));
      RowsOnPages keys(p.k()), values(p.v());
      for (const std::int64_t row : excluded) {
        keys.forbid(row);
        values.forbid(row);
      }
      AttendOptions options = p.options();
      options.mask = mask;
      options.want_weights = options.want_mass = true;
      options.want_entropy = has_log_sum(weigh);
      options.want_top = weigh.kind == Weigh::Kind::uniform ? 0 : 3;
      const Attended whole = attend(p.q(), p.k(), p.v(), options),
                     cut = attend(p.q(), keys.view(), values.view(), options);
      EXPECT_TRUE(same_bits(whole.out, cut.out));
      EXPECT_TRUE(same_bits(whole.weights, cut.weights));
      EXPECT_TRUE(same_bits(whole.mass, cut.mass));
      if (testing::Test::HasFailure()) return;
    }
  }
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> all;
  for (std::int64_t j = first; j < last; ++j) all.push_back(j);
  return all;
}

TEST(ScoreUnmapped, RecordsBeyondTheLengthAreNotRead) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const std::int64_t length : {0, 1, 33, 64}) {
        const Tensor lens = Tensor::of<std::int64_t>({length}, {1});
        expect_unread(Tq, lengths(lens), range(length, 70));
      }
    }
  });
}

TEST(ScoreUnmapped, RecordsOutsideTheWindowAreNotRead) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      std::vector<std::int64_t> outside = range(0, 20 - 3);
      for (const std::int64_t row : range(20 + Tq, 70)) outside.push_back(row);
      expect_unread(Tq, window(3, 0, offset(20)), outside);
    }
  });
}

TEST(ScoreUnmapped, RecordsThatNoQueryKeepsAreNotRead) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      Tensor kept({1, 70}, Dtype::boolean);
      std::vector<std::int64_t> excluded;
      Random random(4);
      for (std::int64_t j = 0; j < 70; ++j) {
        const bool seen = random.chance(0.6);
        kept.values<bool>()[static_cast<std::size_t>(j)] = seen;
        if (!seen) excluded.push_back(j);
      }
      expect_unread(Tq, keep(kept), excluded);
      expect_unread(Tq, keep_keys(kept), excluded);
    }
  });
}

// Rows of keys end where the mapped memory ends: vector loads must not run over the last of them.
TEST(ScoreUnmapped, NothingIsReadBehindTheLastElement) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const std::int64_t D : {1, 3, 8, 15, 17, 33}) {
        for (const std::int64_t Tq : few_and_many) {
          const Problem p({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = 13, .D = D, .Dv = D, .score = score});
          const RowsOnPages q(p.q()), k(p.k()), v(p.v());
          const Attended whole = attend(p.q(), p.k(), p.v(), p.options()),
                         pages = attend(q.view(), k.view(), v.view(), p.options());
          EXPECT_TRUE(same_bits(whole.out, pages.out)) << score_name(score) << ", D " << D << ", Tq " << Tq;
        }
      }
    }
  });
}

// Dense arrays of other dtypes that end where the mapped memory ends: who takes halves for floats runs over it.
TEST(ScoreUnmapped, NothingIsReadBehindTheLastElementOfOtherDtypes) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const Dtype dtype : {Dtype::float64, Dtype::float16, Dtype::bfloat16}) {
        for (const std::int64_t Tq : few_and_many) {
          for (const std::vector<MaskKind>& masks : {std::vector<MaskKind>{}, {MaskKind::lengths}}) {
            Case c{.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = 13, .D = 5, .Dv = 17, .q = dtype, .k = dtype, .v = dtype};
            c.masks = masks;
            c.score = score;
            c.weigh = all_weighings()[static_cast<std::size_t>(Tq) % all_weighings().size()];
            const Problem p(c);
            const auto at_end = [&](const Pages& pages, const View& x) {
              const std::size_t bytes = static_cast<std::size_t>(x.elements()) * size_of(dtype);
              std::byte* first = pages.data() + Pages::size() - bytes;
              std::memcpy(first, x.data(), bytes);
              return View(first, dtype, x.shape());
            };
            const Pages q(1), k(1), v(1);
            ASSERT_LE(p.v().elements() * 8, static_cast<std::int64_t>(Pages::size()));
            EXPECT_TRUE(same_bits(attend(at_end(q, p.q()), at_end(k, p.k()), at_end(v, p.v()), p.options()).out,
                                  attend(p.q(), p.k(), p.v(), p.options()).out))
                << c.text();
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
