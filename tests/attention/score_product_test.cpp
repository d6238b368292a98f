// attention/score_product_test.cpp: every score with every weighing and every mask.
#include <gtest/gtest.h>

#include "support/isas.h"
#include "support/matrix.h"
#include "support/problem.h"

namespace qkv::test {
namespace {

struct Stations {
  Score::Kind score;
  Weigh weigh;
};

std::vector<Stations> all_stations() {
  std::vector<Stations> all;
  for (const Score::Kind score : all_score_kinds) {
    for (const Weigh& weigh : all_weighings()) all.push_back({score, weigh});
  }
  return all;
}

class EveryScoreAndWeighing : public testing::TestWithParam<Stations> {
 public:
  static std::string name(const testing::TestParamInfo<Stations>& info) {
    return std::string(score_name(info.param.score)) + "_and_" + weigh_name(info.param.weigh);
  }
};
INSTANTIATE_TEST_SUITE_P(ScoreProduct, EveryScoreAndWeighing, testing::ValuesIn(all_stations()),
                         EveryScoreAndWeighing::name);

constexpr OnEmpty answers_to_empty[] = {OnEmpty::zero, OnEmpty::uniform, OnEmpty::nan};
constexpr Alignment::Kind alignments[] = {Alignment::Kind::top_left, Alignment::Kind::bottom_right,
                                          Alignment::Kind::offset, Alignment::Kind::offsets};
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
      for (const OnEmpty on_empty : answers_to_empty) {
        ++turn;
        Case c{.H = 4, .Hk = turn % 3 == 0 ? 1 : 2, .Tq = Tq, .masks = mask};
        c.alignment = alignments[turn % 4];
        c.softcap = turn % 5 == 0 ? 1.5 : 0;
        c.on_empty = on_empty;
        c.layout = turn % 7 == 0 ? Layout::heads_inside : Layout::dense;
        c.score = GetParam().score;
        c.weigh = GetParam().weigh;
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
        Case c{.B = 1, .H = 2, .Hk = 1, .Tq = Tq, .Tk = Tk, .D = 9, .Dv = 8, .masks = mask, .seed = ++seed};
        c.score = GetParam().score;
        c.weigh = GetParam().weigh;
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
