// attention/score_covering_test.cpp: scores, weighings and statistics with sizes on both sides of every tile, vector
// and block, and with instruction sets, dtypes, layouts, masks and options: every pair of choices at least once.
#include <gtest/gtest.h>

#include "support/covering.h"
#include "support/isas.h"
#include "support/matrix.h"
#include "support/problem.h"

namespace qkv::test {
namespace {

struct Types {
  Dtype q, k, v;
  std::optional<Dtype> out, parameters;
};
constexpr auto f32 = Dtype::float32, f64 = Dtype::float64, f16 = Dtype::float16, bf16 = Dtype::bfloat16;
const std::vector<Types> types = {{f32, f32, f32, {}, {}},    {f64, f64, f64, {}, {}},   {f16, f16, f16, {}, f16},
                                  {bf16, bf16, bf16, {}, {}}, {f32, f16, f16, {}, bf16}, {f16, f32, bf16, f32, {}},
                                  {bf16, f16, f32, f16, f32}, {f32, f32, f16, bf16, f16}};
struct Heads {
  std::int64_t B, H, Hk;
};
const std::vector<Heads> heads = {{1, 1, 1}, {2, 2, 2}, {1, 6, 2}, {2, 4, 1}, {0, 1, 1}};
const std::vector<std::vector<MaskKind>> masks = {
    {},
    {MaskKind::lengths},
    {MaskKind::causal, MaskKind::lengths},
    {MaskKind::window},
    {MaskKind::alibi, MaskKind::causal},
    {MaskKind::keep},
    {MaskKind::bias},
    {MaskKind::bias, MaskKind::query_lengths},
    {MaskKind::block_mask, MaskKind::drop},
    {MaskKind::keep_by, MaskKind::edit_by},
};
const std::vector<Alignment::Kind> alignments = {Alignment::Kind::top_left, Alignment::Kind::bottom_right,
                                                 Alignment::Kind::offset, Alignment::Kind::offsets};
const std::vector<std::int64_t> widths = {0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 64, 80, 130};
const std::vector<std::int64_t> hidden = {1, 4, 7, 8, 17, 40};
const std::vector<OnEmpty> empties = {OnEmpty::zero, OnEmpty::uniform, OnEmpty::nan};
const std::vector<ScoreStage> stages = {ScoreStage::none, ScoreStage::scaled, ScoreStage::capped, ScoreStage::biased};
const std::vector<double> temperatures = {1, 0.3, 5};
const std::vector<std::int64_t> tops = {0, 1, 5, 40};

std::vector<Weigh> weighings() {
  std::vector<Weigh> all = all_weighings();
  for (const std::int64_t k : {1, 8, 33}) all.push_back(top_k(k));
  return all;
}

// Runs a covering array over these lengths and everything above.
void run_covering(const std::vector<std::int64_t>& queries, const std::vector<std::int64_t>& keys) {
  const std::vector<Isa> isas = supported_isas();
  const std::vector<Weigh> weighs = weighings();
  std::vector<int> levels;
  const auto factor = [&levels](std::size_t count) {
    levels.push_back(static_cast<int>(count));
    return levels.size() - 1;
  };
  const std::size_t tq = factor(queries.size()), tk = factor(keys.size()), d = factor(widths.size()),
                    dk = factor(widths.size()), dv = factor(widths.size()), e = factor(hidden.size()),
                    isa = factor(isas.size()), type = factor(types.size()), head = factor(heads.size()),
                    mask = factor(masks.size()), alignment = factor(alignments.size()),
                    layout = factor(std::size(all_layouts)), empty = factor(empties.size()),
                    stage = factor(stages.size()), score = factor(std::size(all_score_kinds)),
                    weigh = factor(weighs.size()), temperature = factor(temperatures.size()),
                    bandwidth = factor(std::size(all_bandwidths)), top = factor(tops.size()), softcap = factor(2),
                    weights = factor(2), lse = factor(2), per_head = factor(2), mass = factor(2), entropy = factor(2),
                    effective = factor(2), partial = factor(2), rows = factor(2), dropout = factor(2),
                    threads = factor(3);
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
    c.Dk = pick(widths, dk);
    c.Dv = pick(widths, dv);
    c.E = pick(hidden, e);
    c.B = pick(heads, head).B;
    c.H = pick(heads, head).H;
    c.Hk = pick(heads, head).Hk;
    c.q = pick(types, type).q;
    c.k = pick(types, type).k;
    c.v = pick(types, type).v;
    c.out = pick(types, type).out;
    c.parameters = pick(types, type).parameters;
    c.masks = pick(masks, mask);
    c.alignment = pick(alignments, alignment);
    c.layout = pick(all_layouts, layout);
    c.on_empty = pick(empties, empty);
    c.want_scores = pick(stages, stage);
    c.score = pick(all_score_kinds, score);
    c.weigh = pick(weighs, weigh);
    c.temperature = pick(temperatures, temperature);
    c.bandwidth = pick(all_bandwidths, bandwidth);
    c.want_top = pick(tops, top);
    c.softcap = row[softcap] == 0 ? 0 : 2.5;
    c.want_weights = row[weights] != 0;
    c.want_lse = row[lse] != 0;
    c.parameters_per_head = row[per_head] != 0;
    c.want_mass = row[mass] != 0;
    c.want_entropy = row[entropy] != 0;
    c.want_effective = row[effective] != 0;
    c.want_partial = row[partial] != 0;
    if (row[rows] != 0) {
      for (std::int64_t i = c.Tq - 1; i >= 0; i -= 3) c.want_rows.push_back(i);
    }
    // What an empty row gets is not its weights, and is not dropped; parts of dropped weights are nobody's business.
    if (row[dropout] != 0 && c.on_empty == OnEmpty::zero && !c.want_partial) c.dropout = 0.25;
    c.threads = 1 + row[threads];
    const WithIsa with(pick(isas, isa));
    SCOPED_TRACE("isa " + std::string(name_of(pick(isas, isa))));
    for (int repeat = 0; repeat < repeats; ++repeat) {
      c.seed = ++seed;
      expect_right(c);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ScoreCovering, PanelsAreRightOnBothSidesOfEveryWidth) {
  run_covering({0, 5, 8, 9, 15, 16, 17, 24, 25, 47, 49, 65},
               {0, 1, 3, 4, 7, 8, 9, 63, 64, 65, 127, 129, 192, 193, 255, 256, 257, 300});
}

TEST(ScoreCovering, FewQueriesAreRightOnBothSidesOfEveryRunAndChunk) {
  run_covering({0, 1, 2, 3, 4}, {0, 1, 2, 5, 8, 63, 64, 65, 255, 257, 511, 512, 513, 1023, 1025, 2049});
}

}  // namespace
}  // namespace qkv::test
