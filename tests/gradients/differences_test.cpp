// gradients/differences_test.cpp: attend_backward against central differences of attend, in double precision.
#include <gtest/gtest.h>

#include "gradients/check.h"
#include "support/isas.h"
#include "support/stations.h"

namespace qkv::test {
namespace {

Case tiny() {
  Case c = in_double({});
  c.B = 2;
  c.H = 2;
  c.Hk = 1;
  c.Tq = 3;
  c.Tk = 6;
  c.D = 3;
  c.Dv = 2;
  c.E = 3;
  c.bandwidth = Bandwidth::one;
  c.want_entropy = true;
  return c;
}

class EveryScoreAndWeighing : public testing::TestWithParam<Stations> {};
INSTANTIATE_TEST_SUITE_P(Gradients, EveryScoreAndWeighing, testing::ValuesIn(all_stations()), name_of_stations);

void expect_gradients(const Case& c) {
  SCOPED_TRACE(c.text());
  const Problem problem = without_ties(c);
  const Loss loss(problem);
  expect_differences(loss, derivatives(problem, loss.gradients(all_of_score)));
}

TEST_P(EveryScoreAndWeighing, HasItsDerivativeWithoutAMask) { expect_gradients(with_stations(GetParam(), tiny())); }

TEST_P(EveryScoreAndWeighing, HasItsDerivativeUnderEveryMask) {
  for (const MaskKind mask : all_mask_kinds) {
    Case c = with_stations(GetParam(), tiny());
    c.masks = {mask};
    c.temperature = 0.8;
    c.seed = static_cast<std::uint64_t>(mask) + 3;
    expect_gradients(c);
  }
}

TEST_P(EveryScoreAndWeighing, HasItsDerivativeWithDropoutSoftcapAndParametersPerHead) {
  Case c = with_stations(GetParam(), tiny());
  c.masks = {MaskKind::causal, MaskKind::edit_by, MaskKind::alibi};
  c.softcap = 2;
  c.dropout = 0.3;
  c.parameters_per_head = true;
  c.bandwidth = Bandwidth::per_head_and_coordinate;
  c.Dk = 4;
  expect_gradients(c);
}

// Sizes on both sides of panels, groups of them, blocks and ranges of keys.
TEST(GradientsOfLargeCalls, AreDerivativesAlongDirections) {
  struct Size {
    std::int64_t Tq, Tk, D, Dv;
  };
  on_every_isa([] {
    for (const Size& size : {Size{1, 130, 5, 3}, Size{17, 513, 8, 9}, Size{97, 127, 16, 17}, Size{130, 1100, 7, 5}}) {
      for (const auto& masks : {std::vector<MaskKind>{},
                                {MaskKind::causal},
                                {MaskKind::window},
                                {MaskKind::bias},
                                {MaskKind::keep_by, MaskKind::lengths}}) {
        Case c = in_double({});
        c.B = 1;
        c.Hk = 1;
        c.Tq = size.Tq;
        c.Tk = size.Tk;
        c.D = size.D;
        c.Dv = size.Dv;
        c.masks = masks;
        c.want_entropy = true;
        SCOPED_TRACE(c.text());
        const Problem problem(c);
        const Loss loss(problem);
        expect_directions(loss, derivatives(problem, loss.gradients({})), 1);
      }
    }
  });
}

TEST(GradientsOfLargeCalls, AreDerivativesForEveryScore) {
  for (const Score::Kind score : all_score_kinds) {
    if (score == Score::Kind::yours) continue;  // has a kink at every coordinate: too many to step over none
    Case c = in_double({});
    c.Hk = 1;
    c.Tq = 40;
    c.Tk = 150;
    c.D = 9;
    c.E = 17;
    c.score = score;
    c.bandwidth = Bandwidth::per_coordinate;
    c.masks = {MaskKind::causal};
    SCOPED_TRACE(c.text());
    const Problem problem(c);
    const Loss loss(problem);
    expect_directions(loss, derivatives(problem, loss.gradients(all_of_score)));
  }
}

}  // namespace
}  // namespace qkv::test
