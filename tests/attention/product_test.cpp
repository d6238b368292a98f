// attention/product_test.cpp: every mask with every mask, and with everything else that can be asked for.
#include <gtest/gtest.h>

#include "support/isas.h"
#include "support/matrix.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

using Masks = std::vector<MaskKind>;

// None, every kind alone, and every pair, a kind with itself among them.
std::vector<Masks> pairs_of_masks() {
  std::vector<Masks> all = {{}};
  for (const MaskKind a : all_mask_kinds) {
    all.push_back({a});
    for (const MaskKind b : all_mask_kinds) {
      if (a <= b) all.push_back({a, b});
    }
  }
  return all;
}

std::vector<Masks> subsets_of_masks() {
  std::vector<Masks> all;
  for (unsigned bits = 0; bits < 1u << std::size(all_mask_kinds); ++bits) {
    Masks masks;
    for (const MaskKind kind : all_mask_kinds) {
      if ((bits >> static_cast<unsigned>(kind) & 1) != 0) masks.push_back(kind);
    }
    all.push_back(masks);
  }
  return all;
}

// The alignments that make a difference to these masks.
std::vector<Alignment::Kind> alignments_for(const Masks& masks) {
  for (const MaskKind kind : masks) {
    if (is_positional(kind)) return {std::begin(all_alignments), std::end(all_alignments)};
  }
  return {Alignment::Kind::unnamed};
}

// Calls run for the whole product of the other options. Tq is 3 for the decode kernel, 6 for panels.
template <class Run>
void for_each_option(Case c, Run run) {
  for (const Alignment::Kind alignment : alignments_for(c.masks)) {
    for (const double softcap : {0.0, 1.5}) {
      for (const OnEmpty on_empty : all_answers_to_empty) {
        for (const std::int64_t Hk : {1, 2, 4}) {
          for (const Layout layout : {Layout::dense, Layout::heads_inside, Layout::spread}) {
            for (const std::int64_t Tq : {3, 6}) {
              c.alignment = alignment;
              c.softcap = softcap;
              c.on_empty = on_empty;
              c.H = 4;
              c.Hk = Hk;
              c.layout = layout;
              c.Tq = Tq;
              ++c.seed;
              run(c);
              if (testing::Test::HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

class EveryPairOfMasks : public testing::TestWithParam<Masks> {};

std::string name_of_masks(const testing::TestParamInfo<Masks>& info) {
  std::string name;
  for (const MaskKind kind : info.param) name += (name.empty() ? "" : "_and_") + std::string(name_of(kind));
  return name.empty() ? "none" : name;
}

INSTANTIATE_TEST_SUITE_P(Product, EveryPairOfMasks, testing::ValuesIn(pairs_of_masks()), name_of_masks);

TEST_P(EveryPairOfMasks, WorksWithEveryOption) {
  std::uint64_t turn = 0;
  for_each_option({.masks = GetParam()}, [&](Case c) {
    // What else may be asked for takes turns in the quick matrix and is multiplied out in the full one.
    for (const ScoreStage stage : all_score_stages) {
      for (const bool weights : {false, true}) {
        ++turn;
        if (!full_matrix() && turn % 8 != (turn / 8) % 8) continue;
        c.want_scores = stage;
        c.want_weights = weights;
        c.want_lse = turn % 2 == 0;
        expect_right(c);
      }
    }
  });
}

TEST_P(EveryPairOfMasks, WorksOnEveryInstructionSetAcrossBlocks) {
  on_every_isa([&] {
    for (const Alignment::Kind alignment : alignments_for(GetParam())) {
      expect_right(
          {.B = 1, .H = 2, .Hk = 1, .Tq = 53, .Tk = 290, .D = 9, .Dv = 8, .masks = GetParam(), .alignment = alignment});
      expect_right(
          {.B = 1, .H = 3, .Hk = 1, .Tq = 2, .Tk = 700, .D = 9, .Dv = 8, .masks = GetParam(), .alignment = alignment});
    }
  });
}

TEST(Product, EverySubsetOfMasksWorks) {
  std::uint64_t seed = 1;
  for (const Masks& masks : subsets_of_masks()) {
    Random random(++seed);
    const auto alignments = alignments_for(masks);
    Case c = {.masks = masks, .seed = seed};
    c.alignment = alignments[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(alignments.size())))];
    c.H = 2;
    c.Hk = 1 + random.below(2);
    c.Tq = random.chance(0.5) ? 3 : 6;
    c.softcap = random.chance(0.5) ? 0 : 1.5;
    c.on_empty = all_answers_to_empty[random.below(3)];
    c.want_scores = all_score_stages[random.below(4)];
    c.want_weights = random.chance(0.5);
    expect_right(c);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace qkv::test
