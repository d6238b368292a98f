// attention/extremes_test.cpp: scores at the ends of what numbers can hold.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float largest = std::numeric_limits<float>::max();

constexpr std::int64_t few_and_many[] = {1, 4, 5, 30};

TEST(Extremes, ScoresOfAHundredAndAThousandAreRight) {
  on_every_isa([] {
    for (const double magnitude : {100.0, 1000.0}) {
      for (const std::int64_t Tq : few_and_many) {
        for (const std::int64_t Tk : {2, 9, 300, 700}) {
          for (const double softcap : {0.0, 30.0}) {
            expect_right({.Tq = Tq,
                          .Tk = Tk,
                          .D = 16,
                          .Dv = 8,
                          .softcap = softcap,
                          .want_weights = true,
                          .want_scores = ScoreStage::biased,
                          .magnitude = magnitude});
            expect_right({.Tq = Tq,
                          .Tk = Tk,
                          .D = 16,
                          .Dv = 8,
                          .masks = {MaskKind::causal, MaskKind::bias, MaskKind::alibi},
                          .softcap = softcap,
                          .want_weights = true,
                          .magnitude = magnitude});
          }
        }
      }
    }
  });
}

// One query 1, keys that are their scores, values 1, 2, 3, ...; the same query Tq times.
Attended ask(std::int64_t Tq, const std::vector<float>& scores, const AttendOptions& options = {}) {
  Tensor q({Tq, 1}), v({static_cast<std::int64_t>(scores.size()), 1});
  std::ranges::fill(q.values<float>(), 1.0f);
  for (std::size_t j = 0; j < scores.size(); ++j) v.values<float>()[j] = static_cast<float>(j + 1);
  AttendOptions all = options;
  all.want_lse = true;
  return attend(q, View(scores, {static_cast<std::int64_t>(scores.size()), 1}), v, all);
}

template <class Check>
void for_every_answer(const std::vector<float>& scores, Check check, const AttendOptions& options = {}) {
  on_every_isa([&] {
    for (const std::int64_t Tq : few_and_many) {
      const Attended got = ask(Tq, scores, options);
      for (std::size_t i = 0; i < static_cast<std::size_t>(Tq); ++i)
        check(got.out.values<float>()[i], got.lse.values<float>()[i]);
    }
  });
}

TEST(Extremes, TheLargerOfTwoFarScoresTakesAll) {
  for (const float s : {100.0f, 1000.0f, 1e30f}) {
    for_every_answer({-s, s, -s}, [&](float out, float lse) {
      EXPECT_EQ(out, 2);
      EXPECT_NEAR(lse, s, s * 1e-6f);
    });
  }
}

TEST(Extremes, EqualScoresShareHoweverLargeTheyAre) {
  for (const float s : {0.0f, 100.0f, -100.0f, 1000.0f, -1000.0f, 1e30f, -1e30f}) {
    for_every_answer({s, s, s}, [&](float out, float lse) {
      EXPECT_NEAR(out, 2, 1e-6f) << s;
      EXPECT_NEAR(lse, s + std::log(3.0f), 1e-6f * std::max(1.0f, std::abs(s))) << s;
    });
  }
}

TEST(Extremes, RisingScoresNeverLoseTheirLargest) {
  // Ever larger scores, one block after another: every earlier sum becomes nothing.
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      std::vector<float> scores(2000);
      for (std::size_t j = 0; j < scores.size(); ++j) scores[j] = static_cast<float>(j) * 200 - 200000;
      EXPECT_NEAR(ask(Tq, scores).out.values<float>()[0], 2000, 1e-3f);
      std::reverse(scores.begin(), scores.end());
      EXPECT_NEAR(ask(Tq, scores).out.values<float>()[0], 1, 1e-6f);
    }
  });
}

TEST(Extremes, AMinusInfiniteScoreThatIsSeenGetsNoWeight) {
  for_every_answer({1, -infinity, 1}, [](float out, float lse) {
    EXPECT_NEAR(out, 2, 1e-6f);
    EXPECT_NEAR(lse, 1 + std::log(2.0f), 1e-6f);
  });
}

TEST(Extremes, VisibleScoresThatAreAllMinusInfinityGiveNan) {
  for_every_answer({-infinity, -infinity, -infinity}, [](float out, float) { EXPECT_TRUE(std::isnan(out)); });
  // Not an empty row, so on_empty has no say.
  for_every_answer({-infinity}, [](float out, float) { EXPECT_TRUE(std::isnan(out)); }, {.on_empty = OnEmpty::uniform});
}

TEST(Extremes, AnInfiniteScoreGivesNan) {
  for_every_answer({1, infinity, 1}, [](float out, float lse) {
    EXPECT_TRUE(std::isnan(out));
    EXPECT_FALSE(std::isfinite(lse));
  });
}

TEST(Extremes, SoftcapTamesInfinity) {
  for_every_answer({1, infinity, -infinity},
                   [](float out, float lse) {
                     EXPECT_TRUE(std::isfinite(out));
                     EXPECT_TRUE(std::isfinite(lse));
                   },
                   {.softcap = 5});
}

TEST(Extremes, AFiniteBiasIsNeverAnExclusion) {
  // The lowest and the highest finite number, everywhere: scores drown in it, so all keys are equal, and none is
  // excluded.
  for (const float everywhere : {-largest, largest, -1e38f}) {
    const Tensor added = Tensor::of<float>({everywhere}, {1});
    for_every_answer({3, 1, 2}, [&](float out, float) { EXPECT_NEAR(out, 2, 1e-6f) << everywhere; },
                     {.mask = bias(added)});
  }
}

TEST(Extremes, TheLowestFiniteBiasOnSomeKeysLeavesTheOthers) {
  const Tensor added = Tensor::of<float>({-largest, 0, -largest}, {3});
  for_every_answer({3, 1, 2},
                   [](float out, float lse) {
                     EXPECT_EQ(out, 2);
                     EXPECT_EQ(lse, 1);
                   },
                   {.mask = bias(added)});
}

TEST(Extremes, AMinusInfiniteBiasExcludes) {
  const Tensor some = Tensor::of<float>({-infinity, -0.0f, -infinity}, {3}), all = Tensor::of<float>({-infinity}, {1});
  for_every_answer({3, 1, 2},
                   [](float out, float lse) {
                     EXPECT_EQ(out, 2);
                     EXPECT_EQ(lse, 1);
                   },
                   {.mask = bias(some)});
  for_every_answer({3, 1, 2},
                   [](float out, float lse) {
                     EXPECT_EQ(out, 0);
                     EXPECT_EQ(lse, -infinity);
                   },
                   {.mask = bias(all)});
  // It excludes even an infinite or undefined score, which adding could not.
  for_every_answer({infinity, 1, std::nanf("")}, [](float out, float) { EXPECT_EQ(out, 2); }, {.mask = bias(some)});
}

TEST(Extremes, AnInfiniteOrUndefinedBiasGivesNan) {
  for (const float bad : {infinity, std::nanf("")}) {
    const Tensor added = Tensor::of<float>({0, bad, 0}, {3});
    for_every_answer({3, 1, 2}, [](float out, float) { EXPECT_TRUE(std::isnan(out)); }, {.mask = bias(added)});
  }
}

TEST(Extremes, AHalfPrecisionBiasOfMinusInfinityExcludesAndItsLowestFiniteOneDoesNot) {
  const Tensor excluded = Tensor::of<Float16>({Float16(-infinity), Float16(0.0f), Float16(-infinity)}, {3});
  const Tensor low = Tensor::of<Float16>({Float16(-65504.0f)}, {1});
  for_every_answer({3, 1, 2}, [](float out, float) { EXPECT_EQ(out, 2); }, {.mask = bias(excluded)});
  for_every_answer({1, 1, 1}, [](float out, float) { EXPECT_NEAR(out, 2, 1e-6f); }, {.mask = bias(low)});
}

TEST(Extremes, TinyScoresGiveNearlyTheMean) {
  for_every_answer({1e-30f, -1e-30f, 1e-42f}, [](float out, float lse) {
    EXPECT_NEAR(out, 2, 1e-6f);
    EXPECT_NEAR(lse, std::log(3.0f), 1e-6f);
  });
}

TEST(Extremes, ScoresThatOverflowBothWaysGiveNan) {
  // q . k of 1e30 and 1e30 is infinite in float32 and not in the exact formula: NaN says so.
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      Tensor q({Tq, 1});
      std::ranges::fill(q.values<float>(), 1e30f);
      const Tensor k = Tensor::of<float>({-1e30f, -1e30f}, {2, 1}), v = Tensor::of<float>({1, 2}, {2, 1});
      EXPECT_TRUE(std::isnan(attend(q, k, v).out.values<float>()[0]));
    }
  });
}

}  // namespace
}  // namespace qkv::test
