// attention/score_product_test.cpp: every score with every weighing and every mask.
#include <gtest/gtest.h>

#include "support/isas.h"
#include "support/matrix.h"
#include "support/problem.h"
#include "support/stations.h"

namespace qkv::test {
namespace {

class EveryScoreAndWeighing : public testing::TestWithParam<Stations> {};
INSTANTIATE_TEST_SUITE_P(ScoreProduct, EveryScoreAndWeighing, testing::ValuesIn(all_stations()), name_of_stations);

constexpr double temperatures[] = {1, 0.5, 4};

// Tq is 3 for the decode kernel, 6 for panels. What else can be asked for takes turns in the quick matrix.
TEST_P(EveryScoreAndWeighing, WorksWithEveryMask) {
  std::uint64_t turn = 0;
  std::vector<std::vector<MaskKind>> masks = {{}};
  for (const MaskKind kind : all_mask_kinds) masks.push_back({kind});
  if (full_matrix()) {
    for (const MaskKind a : all_mask_kinds) {
      for (const MaskKind b : all_mask_kinds) masks.push_back({a, b});
    }
  }
  for (const auto& mask : masks) {
    for (const std::int64_t Tq : {3, 6}) {
      for (const OnEmpty on_empty : all_answers_to_empty) {
        ++turn;
        Case c = with_stations(GetParam(), {.H = 4, .Hk = turn % 3 == 0 ? 1 : 2, .Tq = Tq, .masks = mask});
        c.alignment = all_alignments[turn % 4];
        c.softcap = turn % 5 == 0 ? 1.5 : 0;
        c.on_empty = on_empty;
        c.layout = turn % 7 == 0 ? Layout::heads_inside : Layout::dense;
        c.Dk = 3 + static_cast<std::int64_t>(turn % 4);
        c.parameters_per_head = turn % 2 == 0;
        c.bandwidth = all_bandwidths[turn % 5];
        c.temperature = temperatures[turn % 3];
        c.seed = turn;
        if (turn % 2 == 0) c = with_all_statistics(c);
        expect_right(c);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(EveryScoreAndWeighing, WorksOnEveryInstructionSetAcrossBlocks) {
  std::uint64_t seed = 0;
  const std::vector<std::vector<MaskKind>> masks = {
      {}, {MaskKind::causal, MaskKind::bias}, {MaskKind::lengths}, {MaskKind::keep, MaskKind::edit_by}};
  on_every_isa([&] {
    for (const auto& mask : masks) {
      for (const auto& [Tq, Tk] : {std::pair{53, 290}, {2, 700}}) {
        Case c = with_stations(
            GetParam(), {.B = 1, .H = 2, .Hk = 1, .Tq = Tq, .Tk = Tk, .D = 9, .Dv = 8, .masks = mask, .seed = ++seed});
        c.E = 3;
        c.temperature = 0.7;
        if (seed % 3 == 0) c = with_all_statistics(c);
        expect_right(c);
        if (HasFailure()) return;
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
