// attention/sizes_test.cpp: plain attention over sizes around every width that a kernel could have.
#include <gtest/gtest.h>

#include "support/isas.h"
#include "support/matrix.h"
#include "support/problem.h"

namespace qkv::test {
namespace {

constexpr std::int64_t widths[] = {0, 1, 3, 4, 7, 8, 15, 16, 17, 40, 64, 80, 96, 128, 130};

TEST(Sizes, EveryWidthOfKeysWithEveryWidthOfValues) {
  on_every_isa([] {
    for (const std::int64_t D : widths) {
      for (const std::int64_t Dv : widths) {
        expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = 7, .Tk = 11, .D = D, .Dv = Dv});
        expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = 1, .Tk = 11, .D = D, .Dv = Dv});
      }
    }
  });
}

TEST(Sizes, EveryNumberOfQueriesUpToThreePanels) {
  on_every_isa([] {
    for (std::int64_t Tq = 0; Tq <= 150; ++Tq) {
      expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = 19, .D = 8, .Dv = 8});
      expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = Tq, .D = 8, .Dv = 8, .masks = {MaskKind::causal}});
    }
  });
}

TEST(Sizes, EveryNumberOfKeysUpToTwoBlocks) {
  on_every_isa([] {
    for (std::int64_t Tk = 0; Tk <= 530; Tk += full_matrix() || Tk < 40 || Tk % 64 >= 62 || Tk % 64 <= 1 ? 1 : 7) {
      expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = 9, .Tk = Tk, .D = 8, .Dv = 8});
      expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = 2, .Tk = Tk, .D = 8, .Dv = 8});
    }
  });
}

// Runs of 512 keys, chunks of some thousands.
TEST(Sizes, LongStreamsOfKeysForFewQueries) {
  on_every_isa([] {
    for (const std::int64_t Tk : {4095, 4096, 4097, 8191, 8192, 8193, 16385}) {
      expect_right({.B = 1, .H = 4, .Hk = 2, .Tq = 1, .Tk = Tk, .D = 16, .Dv = 16});
      expect_right({.B = 1, .H = 2, .Hk = 1, .Tq = 4, .Tk = Tk, .D = 17, .Dv = 5, .masks = {MaskKind::causal}});
      expect_right(
          {.B = 2, .H = 1, .Hk = 1, .Tq = 3, .Tk = Tk, .D = 8, .Dv = 8, .masks = {MaskKind::lengths}, .threads = 2});
    }
  });
}

TEST(Sizes, ManyKeysForOneMoreQueryThanDecodeTakes) {
  on_every_isa([] {
    expect_right({.B = 1, .H = 2, .Hk = 1, .Tq = 5, .Tk = 8193, .D = 16, .Dv = 16});
    expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = 5, .Tk = 4097, .D = 16, .Dv = 16, .masks = {MaskKind::window}});
  });
}

TEST(Sizes, ManyQueriesForFewKeys) {
  on_every_isa([] {
    for (const std::int64_t Tk : {0, 1, 2, 5}) {
      expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = 1030, .Tk = Tk, .D = 8, .Dv = 8});
      expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = 1030, .Tk = Tk, .D = 8, .Dv = 8, .masks = {MaskKind::causal}});
    }
  });
}

TEST(Sizes, SquaresOfCommonWidths) {
  on_every_isa([] {
    for (const std::int64_t D : {64, 128}) {
      for (const std::int64_t T : {128, 257, 512}) {
        expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = T, .Tk = T, .D = D, .Dv = D});
        expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = T, .Tk = T, .D = D, .Dv = D, .masks = {MaskKind::causal}});
      }
    }
  });
}

TEST(Sizes, AnEmptyBatchGivesAnEmptyResult) {
  expect_right({.B = 0, .Tq = 6, .want_weights = true, .want_scores = ScoreStage::biased});
  expect_right({.B = 0, .Tq = 1, .want_weights = true, .want_scores = ScoreStage::biased});
}

}  // namespace
}  // namespace qkv::test
