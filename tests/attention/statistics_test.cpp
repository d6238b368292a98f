// attention/statistics_test.cpp: log-sum-exp, weights and scores, asked for together and alone.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "support/close.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

TEST(Statistics, EveryStageOfTheScoresIsRight) {
  on_every_isa([] {
    for (const ScoreStage stage : {ScoreStage::scaled, ScoreStage::capped, ScoreStage::biased}) {
      for (const std::int64_t Tq : {1, 4, 5, 50}) {
        for (const std::int64_t Tk : {1, 70, 600}) {
          for (const double softcap : {0.0, 1.5}) {
            expect_right({.H = 4,
                          .Tq = Tq,
                          .Tk = Tk,
                          .D = 17,
                          .Dv = 6,
                          .masks = {MaskKind::causal, MaskKind::bias, MaskKind::edit_by},
                          .softcap = softcap,
                          .want_scores = stage});
          }
        }
      }
    }
  });
}

TEST(Statistics, ScoresBeforeTheMaskAreThereForExcludedPairsToo) {
  on_every_isa([] {
    for (const std::int64_t Tq : {2, 30}) {
      const Problem p({.Tq = Tq, .Tk = 40, .D = 8, .Dv = 8, .want_scores = ScoreStage::scaled});
      const Attended open = attend(p.q(), p.k(), p.v(), p.options());
      const Tensor lens = Tensor::of<std::int64_t>({0, 3}, {2});
      AttendOptions masked = p.options();
      masked.mask = lengths(lens);
      EXPECT_TRUE(same_bits(attend(p.q(), p.k(), p.v(), masked).scores, open.scores));
    }
  });
}

TEST(Statistics, WithoutSoftcapCappedIsScaled) {
  const Problem p({.Tq = 30, .Tk = 40});
  AttendOptions options = p.options();
  options.want_scores = ScoreStage::scaled;
  const Attended scaled = attend(p.q(), p.k(), p.v(), options);
  options.want_scores = ScoreStage::capped;
  EXPECT_TRUE(same_bits(attend(p.q(), p.k(), p.v(), options).scores, scaled.scores));
}

TEST(Statistics, OnlyWhatIsAskedForIsThere) {
  const Tensor x = random_tensor({7, 8}, 1);
  const Attended got = attend(x, x, x);
  EXPECT_TRUE(got.out);
  EXPECT_FALSE(got.lse);
  EXPECT_FALSE(got.weights);
  EXPECT_FALSE(got.scores);
}

// The other results do not depend on what else is asked for, beyond rounding.
TEST(Statistics, TheWeightsAreThoseOfTheScores) {
  on_every_isa([] {
    for (const std::int64_t Tq : {2, 30}) {
      const Problem p({.Tq = Tq,
                       .Tk = 150,
                       .D = 8,
                       .Dv = 8,
                       .masks = {MaskKind::keep},
                       .want_weights = true,
                       .want_scores = ScoreStage::biased});
      const Attended got = attend(p.q(), p.k(), p.v(), p.options());
      for (std::size_t i = 0; i < static_cast<std::size_t>(got.weights.elements()); ++i) {
        const auto score = static_cast<double>(got.scores.values<float>()[i]),
                   lse = static_cast<double>(got.lse.values<float>()[i / 150]);
        const double weight = std::isinf(score) ? 0 : std::exp(score - lse);
        ASSERT_NEAR(static_cast<double>(got.weights.values<float>()[i]), weight, 4e-6);
      }
    }
  });
}

TEST(Statistics, AWeightOfAnExcludedKeyIsExactlyZero) {
  on_every_isa([] {
    for (const std::int64_t Tq : {2, 30}) {
      const Problem p({.Tq = Tq,
                       .Tk = 150,
                       .D = 8,
                       .Dv = 8,
                       .masks = {MaskKind::causal},
                       .alignment = Alignment::Kind::top_left,
                       .want_weights = true});
      const Attended got = attend(p.q(), p.k(), p.v(), p.options());
      for (std::size_t at = 0; at < static_cast<std::size_t>(got.weights.elements()); ++at) {
        const std::size_t j = at % 150, i = at / 150 % static_cast<std::size_t>(Tq);
        ASSERT_EQ(got.weights.values<float>()[at] == 0, j > i);
      }
    }
  });
}

TEST(Statistics, AttendIntoWritesOnlyWhatItIsGiven) {
  const Problem p({.Tq = 30, .Tk = 40, .Dv = 3});
  Tensor out({2, 2, 30, 3}), lse({2, 2, 30});
  attend_into(p.q(), p.k(), p.v(), {.out = out, .lse = lse}, p.options());
  const Attended whole = attend(p.q(), p.k(), p.v(), p.options());
  EXPECT_TRUE(same_bits(out, whole.out));
  EXPECT_TRUE(same_bits(lse, whole.lse));
  std::ranges::fill(out.values<float>(), 7.0f);
  attend_into(p.q(), p.k(), p.v(), {.out = out}, p.options());
  EXPECT_TRUE(same_bits(out, whole.out));
}

}  // namespace
}  // namespace qkv::test
