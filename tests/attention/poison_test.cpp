// attention/poison_test.cpp: what is excluded has no influence, whatever it holds; what is seen comes through.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "support/close.h"
#include "support/isas.h"
#include "support/poison.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

// Every mask, every poison, poison in one record, in the keys, the values or both: rows that see the record get what
// the reference gets, the others do not notice.
TEST(Poison, ReachesThoseWhoSeeItAndNobodyElse) {
  on_every_isa([] {
    std::uint64_t seed = 0;
    for (const MaskKind kind : excluding_masks) {
      for (const Poison& poison : poisons) {
        for (const std::int64_t Tq : {1, 4, 5, 29}) {
          for (const int where : {1, 2, 3}) {
            Case c = {.H = 2,
                      .Hk = 1,
                      .Tq = Tq,
                      .Tk = 29 + 16 * (Tq % 2),
                      .D = 9,
                      .Dv = 8,
                      .masks = {kind},
                      .want_weights = true,
                      .want_scores = ScoreStage::biased,
                      .seed = ++seed};
            const Problem p(c);
            const std::int64_t row = static_cast<std::int64_t>(seed * 7) % c.Tk;
            if ((where & 1) != 0) poison_row(p.k(), row, poison.bits);
            if ((where & 2) != 0) poison_row(p.v(), row, poison.bits);
            SCOPED_TRACE(std::string(poison.name) + " in record " + std::to_string(row) + ", " + c.text());
            expect_right(p);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

// The diagonal tile is where a neighbour sees what this query does not: every key of it in turn.
TEST(Poison, InsideTheDiagonalTileStaysBelowTheDiagonal) {
  on_every_isa([] {
    const std::int64_t T = 61;
    for (std::int64_t row = 0; row < T; ++row) {
      for (const Poison& poison : {poisons[0], poisons[5]}) {
        const Problem p(
            {.B = 1, .H = 1, .Hk = 1, .Tq = T, .Tk = T, .D = 16, .Dv = 16, .masks = {MaskKind::causal}, .seed = 3});
        const Tensor clean = attend(p.q(), p.k(), p.v(), p.options()).out;
        poison_row(p.v(), row, poison.bits);
        const Tensor dirty = attend(p.q(), p.k(), p.v(), p.options()).out;
        for (std::int64_t i = 0; i < T; ++i) {
          for (std::int64_t d = 0; d < 16; ++d) {
            const auto at = static_cast<std::size_t>(i * 16 + d);
            if (i < row) {
              ASSERT_NEAR(dirty.values<float>()[at], clean.values<float>()[at], 2e-6f)
                  << poison.name << " in value " << row << ", query " << i;
            } else {
              ASSERT_FALSE(std::isfinite(dirty.values<float>()[at]))
                  << poison.name << " in value " << row << ", query " << i;
            }
          }
        }
        poison_row(p.k(), row, poison.bits);
        expect_right(p);
      }
    }
  });
}

TEST(Poison, InTheMiddleOfAKeepMaskIsSeenOnlyByThoseWhoKeepIt) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 40}) {
      const std::int64_t Tk = 200;
      for (const std::int64_t row : {0, 7, 64, 127, 128, 199}) {
        const Tensor q = random_tensor({1, 1, Tq, 16}, 1), k = random_tensor({1, 1, Tk, 16}, 2);
        Tensor v = random_tensor({1, 1, Tk, 16}, 3), kept({Tq, Tk}, Dtype::boolean);
        for (std::int64_t i = 0; i < Tq; ++i) {
          for (std::int64_t j = 0; j < Tk; ++j)
            kept.values<bool>()[static_cast<std::size_t>(i * Tk + j)] = j != row || i % 3 == 1;
        }
        poison_row(v, row, 0x7fc00001);
        const Tensor out = attend(q, k, v, {.mask = keep(kept)}).out;
        for (std::int64_t i = 0; i < Tq; ++i) {
          EXPECT_EQ(std::isnan(out.values<float>()[static_cast<std::size_t>(i * 16)]), i % 3 == 1)
              << "query " << i << ", record " << row;
        }
        expect_right(q, k, v, {.mask = keep(kept), .want_lse = true});
      }
    }
  });
}

TEST(Poison, InAQueryStaysInItsRow) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 40}) {
      for (const Poison& poison : poisons) {
        SCOPED_TRACE(poison.name);
        const Problem p({.Tq = Tq, .Tk = 33, .D = 16, .Dv = 8, .want_weights = true});
        poison_row(p.q(), 1, poison.bits);
        expect_right(p);
      }
    }
  });
}

TEST(Poison, InOneElementOfASeenKeyOrValueComesThrough) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 5, 20}) {
      for (const std::uint32_t bits : {0x7fc00001u, 0xffc00000u, 0x7f800001u}) {
        for (std::int64_t d = 0; d < 17; ++d) {
          for (const std::int64_t j : {0, 31, 32}) {
            const Problem p({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = 33, .D = 17, .Dv = 17});
            p.v().as<std::uint32_t>()[j * 17 + d] = bits;
            expect_right(p);
            p.k().as<std::uint32_t>()[j * 17 + d] = bits;
            expect_right(p);
          }
        }
      }
    }
  });
}

// A block, run or chunk of keys whose scores are all NaN has no largest score; its NaN must not be lost for that.
TEST(Poison, InAllKeysOfABlockOrChunkComesThrough) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 5}) {
      for (const std::int64_t Tk : {129, 193, 257, 513, 1025, 2049, 4097, 8193}) {
        for (const bool at_end : {true, false}) {
          SCOPED_TRACE("Tq " + std::to_string(Tq) + ", Tk " + std::to_string(Tk) +
                       (at_end ? ", last key" : ", all but the last key"));
          const Problem p({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = Tk, .D = 4, .Dv = 4});
          for (std::int64_t j = at_end ? Tk - 1 : 0; j < (at_end ? Tk : Tk - 1); ++j) poison_row(p.k(), j, 0xffc00001);
          const Attended got = attend(p.q(), p.k(), p.v(), p.options());
          for (const float x : got.out.values<float>()) ASSERT_TRUE(std::isnan(x));
          for (const float x : got.lse.values<float>()) ASSERT_TRUE(std::isnan(x));
        }
      }
    }
  });
}

TEST(Poison, InEmptyRowsBringsZeros) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 40}) {
      const Problem p({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = 40, .D = 8, .Dv = 8});
      for (std::int64_t j = 0; j < 40; ++j) {
        poison_row(p.k(), j, 0x7fc00000);
        poison_row(p.v(), j, 0x7fc00000);
      }
      const Tensor lens = Tensor::of<std::int64_t>({0}, {1});
      const Attended got = attend(p.q(), p.k(), p.v(), {.mask = lengths(lens), .want_weights = true});
      for (const float x : got.out.values<float>()) ASSERT_EQ(x, 0);
      for (const float x : got.weights.values<float>()) ASSERT_EQ(x, 0);
    }
  });
}

TEST(Poison, InExcludedHalfPrecisionRecordsIsNotSeen) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float16, Dtype::bfloat16, Dtype::float64}) {
      for (const std::int64_t Tq : {2, 29}) {
        const Problem p({.Tq = Tq,
                         .Tk = 50,
                         .D = 9,
                         .Dv = 8,
                         .q = dtype,
                         .k = dtype,
                         .v = dtype,
                         .masks = {MaskKind::causal, MaskKind::keep}});
        for (const std::int64_t row : {20, 44}) {
          for (std::int64_t d = 0; d < 8; ++d) {
            set_element(p.k(), row * p.k().stride(2) + d, std::numeric_limits<double>::quiet_NaN());
            set_element(p.v(), row * p.v().stride(2) + d, std::numeric_limits<double>::infinity());
          }
        }
        SCOPED_TRACE(qkv::name_of(dtype));
        expect_right(p);
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
