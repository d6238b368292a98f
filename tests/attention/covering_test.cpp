// attention/covering_test.cpp: sizes on both sides of every tile, vector and block, with instruction sets, dtypes,
// layouts, masks and options, every pair of choices at least once.
#include <gtest/gtest.h>

#include "support/covering.h"
#include "support/isas.h"
#include "support/matrix.h"
#include "support/problem.h"

namespace qkv::test {
namespace {

struct Types {
  Dtype q, k, v;
  std::optional<Dtype> out;
};
constexpr auto f32 = Dtype::float32, f64 = Dtype::float64, f16 = Dtype::float16, bf16 = Dtype::bfloat16;
const std::vector<Types> types = {
    {f32, f32, f32, {}},   {f64, f64, f64, {}},   {f16, f16, f16, {}},   {bf16, bf16, bf16, {}}, {f32, f16, f16, {}},
    {f32, bf16, bf16, {}}, {f16, f32, bf16, f32}, {bf16, f16, f32, f16}, {f32, f32, f16, bf16},  {f32, f16, f32, f16},
};
struct Heads {
  std::int64_t B, H, Hk;
};
const std::vector<Heads> heads = {{1, 1, 1}, {2, 2, 2}, {1, 6, 2}, {3, 4, 1}, {2, 5, 5}, {0, 1, 1}, {1, 8, 1}};
const std::vector<std::vector<MaskKind>> masks = {
    {},
    {MaskKind::lengths},
    {MaskKind::causal},
    {MaskKind::causal, MaskKind::lengths},
    {MaskKind::window},
    {MaskKind::alibi},
    {MaskKind::alibi, MaskKind::causal},
    {MaskKind::keep},
    {MaskKind::drop, MaskKind::keep_keys},
    {MaskKind::bias},
    {MaskKind::bias, MaskKind::window, MaskKind::query_lengths},
    {MaskKind::block_mask},
    {MaskKind::keep_by, MaskKind::edit_by},
};
const std::vector<Alignment::Kind> alignments = {Alignment::Kind::top_left, Alignment::Kind::bottom_right,
                                                 Alignment::Kind::offset, Alignment::Kind::offsets};
const std::vector<std::int64_t> widths = {0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 40, 64, 80, 96, 128, 130};
const std::vector<OnEmpty> empties = {OnEmpty::zero, OnEmpty::uniform, OnEmpty::nan};
const std::vector<ScoreStage> stages = {ScoreStage::none, ScoreStage::scaled, ScoreStage::capped, ScoreStage::biased};
const std::vector<int> threads = {1, 2, 3};

// Runs a covering array over these lengths and everything above.
void run_covering(const std::vector<std::int64_t>& queries, const std::vector<std::int64_t>& keys) {
  const std::vector<Isa> isas = supported_isas();
  std::vector<int> levels;
  const auto factor = [&levels](std::size_t count) {
    levels.push_back(static_cast<int>(count));
    return levels.size() - 1;
  };
  const std::size_t tq = factor(queries.size()), tk = factor(keys.size()), d = factor(widths.size()),
                    dv = factor(widths.size()), isa = factor(isas.size()), type = factor(types.size()),
                    head = factor(heads.size()), mask = factor(masks.size()), alignment = factor(alignments.size()),
                    layout = factor(std::size(all_layouts)), empty = factor(empties.size()),
                    stage = factor(stages.size()), softcap = factor(2), weights = factor(2), lse = factor(2),
                    thread = factor(threads.size());
  std::uint64_t seed = 0;
  const int repeats = full_matrix() ? 5 : 1;
  for (const std::vector<int>& row : pairwise_rows(levels)) {
    const auto pick = [&row](const auto& from, std::size_t which) {
      return from[static_cast<std::size_t>(row[which])];
    };
    Case c;
    c.Tq = pick(queries, tq);
    c.Tk = pick(keys, tk);
    c.D = pick(widths, d);
    c.Dv = pick(widths, dv);
    c.B = pick(heads, head).B;
    c.H = pick(heads, head).H;
    c.Hk = pick(heads, head).Hk;
    c.q = pick(types, type).q;
    c.k = pick(types, type).k;
    c.v = pick(types, type).v;
    c.out = pick(types, type).out;
    c.masks = pick(masks, mask);
    c.alignment = pick(alignments, alignment);
    c.layout = pick(all_layouts, layout);
    c.on_empty = pick(empties, empty);
    c.want_scores = pick(stages, stage);
    c.softcap = row[softcap] == 0 ? 0 : 2.5;
    c.want_weights = row[weights] != 0;
    c.want_lse = row[lse] != 0;
    c.threads = pick(threads, thread);
    const WithIsa with(pick(isas, isa));
    SCOPED_TRACE("isa " + std::string(name_of(pick(isas, isa))));
    for (int repeat = 0; repeat < repeats; ++repeat) {
      c.seed = ++seed;
      expect_right(c);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Covering, PanelsAreRightOnBothSidesOfEveryWidth) {
  run_covering({0, 5, 7, 8, 9, 15, 16, 17, 23, 24, 25, 47, 48, 49, 65, 97},
               {0, 1, 3, 4, 5, 6, 7, 8, 9, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 300});
}

TEST(Covering, FewQueriesAreRightOnBothSidesOfEveryRunAndChunk) {
  run_covering({0, 1, 2, 3, 4}, {0, 1, 2, 5, 8, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1023, 1025, 2049});
}

}  // namespace
}  // namespace qkv::test
