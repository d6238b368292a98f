// attention/score_poison_test.cpp: what is excluded has no influence, under every score and weighing; NaN that is seen
// comes through.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "support/close.h"
#include "support/isas.h"
#include "support/poison.h"
#include "support/problem.h"
#include "support/random.h"
#include "support/stations.h"

namespace qkv::test {
namespace {

class ScorePoison : public testing::TestWithParam<Stations> {
 public:
  Case with(const Case& c) const { return with_stations(GetParam(), c); }
};
INSTANTIATE_TEST_SUITE_P(Poison, ScorePoison, testing::ValuesIn(all_stations()), name_of_stations);

// Poison in one record, in its key, its value or both: rows that see the record get what the reference gets, the others
// do not notice.
TEST_P(ScorePoison, ReachesThoseWhoSeeItAndNobodyElse) {
  on_every_isa([&] {
    std::uint64_t seed = 0;
    for (const MaskKind kind : excluding_masks) {
      for (const std::int64_t Tq : {1, 4, 5, 29}) {
        for (const int where : {1, 2, 3}) {
          Case c = with({.B = 1, .H = 2, .Hk = 1, .Tq = Tq, .Tk = 29 + 16 * (Tq % 2), .D = 6, .Dv = 5});
          c.masks = {kind};
          // In a row that is NaN, top_k does not tell keys that a compact kernel hides from those that it sees.
          const bool compact = c.score == Score::Kind::boxcar || c.score == Score::Kind::triangular ||
                               c.score == Score::Kind::epanechnikov;
          c.want_weights = !(compact && c.weigh.kind == Weigh::Kind::top_k);
          c.seed = ++seed;
          const Problem p(c);
          const Poison& poison = poisons[seed % std::size(poisons)];
          const std::int64_t row = static_cast<std::int64_t>(seed * 7) % c.Tk;
          if ((where & 1) != 0) poison_row(p.k(), row, poison.bits);
          if ((where & 2) != 0) poison_row(p.v(), row, poison.bits);
          SCOPED_TRACE(std::string(poison.name) + " in record " + std::to_string(row) + " (" + std::to_string(where) +
                       "), " + c.text());
          expect_right(p);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

// The diagonal tile is where a neighbour sees what this query does not. Rows above the diagonal keep their bits where
// nothing is taken from keys that they do not see; a gaussian's centre may be taken from all that anybody sees.
TEST_P(ScorePoison, InsideTheDiagonalTileStaysBelowTheDiagonal) {
  on_every_isa([&] {
    const std::int64_t T = 37;
    for (std::int64_t row = 0; row < T; row += 3) {
      for (const Poison& poison : {poisons[0], poisons[5]}) {
        Case c = with({.B = 1, .H = 1, .Hk = 1, .Tq = T, .Tk = T, .D = 8, .Dv = 8});
        c.masks = {MaskKind::causal};
        c.seed = 3;
        const Problem p(c);
        const Tensor clean = attend(p.q(), p.k(), p.v(), p.options()).out;
        poison_row(p.k(), row, poison.bits);
        poison_row(p.v(), row, poison.bits);
        const Tensor dirty = attend(p.q(), p.k(), p.v(), p.options()).out;
        for (std::int64_t n = 0; n < row * 8; ++n) {
          const auto at = static_cast<std::size_t>(n);
          ASSERT_NEAR(dirty.values<float>()[at], clean.values<float>()[at],
                      2e-5f * (1 + std::abs(clean.values<float>()[at])))
              << poison.name << " in record " << row << ", query " << n / 8;
        }
        SCOPED_TRACE(std::string(poison.name) + " in record " + std::to_string(row));
        expect_right(p);
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

TEST_P(ScorePoison, BeyondTheLengthsDoesNotChangeABit) {
  on_every_isa([&] {
    for (const std::int64_t Tq : {1, 4, 5, 30}) {
      Case c = with({.B = 2, .H = 2, .Hk = 1, .Tq = Tq, .Tk = 90, .D = 7, .Dv = 5});
      c.want_mass = true;
      Problem p(c);
      const Tensor lens = Tensor::of<std::int64_t>({61, 40}, {2});
      p.options().mask = lengths(lens);
      const Attended clean = attend(p.q(), p.k(), p.v(), p.options());
      for (std::int64_t j = 61; j < 90; ++j) {
        poison_row(p.k(), j, poisons[static_cast<std::size_t>(j) % std::size(poisons)].bits);
        poison_row(p.v(), j, poisons[static_cast<std::size_t>(j) % std::size(poisons)].bits);
      }
      const Attended dirty = attend(p.q(), p.k(), p.v(), p.options());
      EXPECT_TRUE(same_bits(dirty.out, clean.out)) << c.text();
      EXPECT_TRUE(same_bits(dirty.mass, clean.mass)) << c.text();
    }
  });
}

TEST_P(ScorePoison, InAQueryStaysInItsRow) {
  on_every_isa([&] {
    for (const std::int64_t Tq : {3, 40}) {
      for (const Poison& poison : {poisons[0], poisons[3], poisons[5]}) {
        Case c = with({.Tq = Tq, .Tk = 33, .D = 6, .Dv = 5});
        const Problem p(c);
        poison_row(p.q(), 1, poison.bits);
        SCOPED_TRACE(std::string(poison.name) + ", " + c.text());
        expect_right(p);
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

// All keys of a block or chunk: its NaN must not be lost because no score of it is the largest.
TEST_P(ScorePoison, InAllKeysOfABlockOrChunkComesThrough) {
  const bool keys_matter = GetParam().score != Score::Kind::constant && GetParam().weigh.kind != Weigh::Kind::uniform;
  on_every_isa([&] {
    for (const std::int64_t Tq : {1, 5}) {
      for (const std::int64_t Tk : {129, 257, 513, 1025}) {
        for (const bool at_end : {true, false}) {
          const Problem p(with({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = Tk, .D = 4, .Dv = 4}));
          for (std::int64_t j = at_end ? Tk - 1 : 0; j < (at_end ? Tk : Tk - 1); ++j) poison_row(p.k(), j, 0xffc00001);
          const Attended got = attend(p.q(), p.k(), p.v(), p.options());
          for (const float x : got.out.values<float>()) ASSERT_EQ(std::isnan(x), keys_matter) << "Tk " << Tk;
        }
      }
    }
  });
}

TEST(ScorePoison, InEmptyRowsBringsZeros) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const Weigh& weigh : all_weighings()) {
        for (const std::int64_t Tq : {3, 40}) {
          Problem p({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = 40, .D = 8, .Dv = 8, .score = score, .weigh = weigh});
          for (std::int64_t j = 0; j < 40; ++j) {
            poison_row(p.k(), j, 0x7fc00000);
            poison_row(p.v(), j, 0x7fc00000);
          }
          const Tensor lens = Tensor::of<std::int64_t>({0}, {1});
          p.options().mask = lengths(lens);
          p.options().want_weights = p.options().want_mass = true;
          const Attended got = attend(p.q(), p.k(), p.v(), p.options());
          for (const float x : got.out.values<float>()) ASSERT_EQ(x, 0);
          for (const float x : got.weights.values<float>()) ASSERT_EQ(x, 0);
          for (const float x : got.mass.values<float>()) ASSERT_EQ(x, 0);
        }
      }
    }
  });
}

// What is not picked is not pooled.
TEST(ScorePoison, InValuesThatAreNotPickedIsNotSeen) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 40}) {
      for (const Weigh& weigh : {hard(), top_k(3)}) {
        Problem p({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = 60, .D = 4, .Dv = 4, .weigh = weigh});
        p.options().want_top = 3;
        const Attended clean = attend(p.q(), p.k(), p.v(), p.options());
        std::vector<bool> picked(60, false);
        const std::size_t first = weigh.kind == Weigh::Kind::hard ? 1 : 3;
        for (std::size_t n = 0; n < static_cast<std::size_t>(3 * Tq); ++n) {
          if (n % 3 < first) picked[static_cast<std::size_t>(clean.top_indices.values<std::int64_t>()[n])] = true;
        }
        for (std::int64_t j = 0; j < 60; ++j) {
          if (!picked[static_cast<std::size_t>(j)]) poison_row(p.v(), j, 0x7fc00001);
        }
        EXPECT_TRUE(same_bits(attend(p.q(), p.k(), p.v(), p.options()).out, clean.out)) << weigh_name(weigh);
      }
    }
  });
}

TEST(ScorePoison, InParametersReachesEveryRow) {
  on_every_isa([] {
    const Tensor q = random_tensor({9, 5}, 1), k = random_tensor({30, 5}, 2), v = random_tensor({30, 3}, 3);
    Tensor M = random_tensor({5, 5}, 4), w = random_tensor({4}, 5);
    const Tensor Wq = random_tensor({4, 5}, 6), Wk = random_tensor({4, 5}, 7);
    M.values<float>()[7] = std::nanf("");
    w.values<float>()[2] = std::nanf("");
    for (const Score& score : {bilinear(M), additive(Wq, Wk, w)}) {
      for (const Attended held = attend(q, k, v, {.score = score}); const float x : held.out.values<float>())
        EXPECT_TRUE(std::isnan(x));
    }
  });
}

}  // namespace
}  // namespace qkv::test
