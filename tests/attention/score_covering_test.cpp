// attention/score_covering_test.cpp: scores, weighings and statistics with sizes on both sides of every tile, vector
// and block, and with instruction sets, dtypes, layouts, masks and options: every pair of choices at least once.
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "support/covering_cases.h"

namespace qkv::test {
namespace {

constexpr auto f32 = Dtype::float32, f64 = Dtype::float64, f16 = Dtype::float16, bf16 = Dtype::bfloat16;
const std::vector<Dtypes> dtypes = {
    {f32, f32, f32},           {f64, f64, f64},       {f16, f16, f16, {}, f16},   {bf16, bf16, bf16},
    {f32, f16, f16, {}, bf16}, {f16, f32, bf16, f32}, {bf16, f16, f32, f16, f32}, {f32, f32, f16, bf16, f16}};
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
const std::vector<std::int64_t> widths = {0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 64, 80, 130};
const std::vector<std::int64_t> hidden = {1, 4, 7, 8, 17, 40};
const std::vector<double> temperatures = {1, 0.3, 5};
const std::vector<std::int64_t> tops = {0, 1, 5, 40};

std::vector<Weigh> weighings() {
  std::vector<Weigh> all = all_weighings();
  for (const std::int64_t k : {1, 8, 33}) all.push_back(top_k(k));
  return all;
}

// Runs a covering array over these lengths and everything above.
void run_covering(const std::vector<std::int64_t>& queries, const std::vector<std::int64_t>& keys) {
  CoveringCases cases;
  cases.vary(&Case::Tq, queries);
  cases.vary(&Case::Tk, keys);
  cases.vary(&Case::D, widths);
  cases.vary(&Case::Dk, widths);
  cases.vary(&Case::Dv, widths);
  cases.vary(&Case::E, hidden);
  cases.vary(dtypes);
  cases.vary(heads);
  cases.vary(&Case::masks, masks);
  cases.vary(&Case::alignment, all_alignments);
  cases.vary(&Case::layout, all_layouts);
  cases.vary(&Case::on_empty, all_answers_to_empty);
  cases.vary(&Case::want_scores, all_score_stages);
  cases.vary(&Case::score, all_score_kinds);
  cases.vary(&Case::weigh, weighings());
  cases.vary(&Case::temperature, temperatures);
  cases.vary(&Case::bandwidth, all_bandwidths);
  cases.vary(&Case::want_top, tops);
  cases.vary(&Case::softcap, std::array{0.0, 2.5});
  cases.vary(&Case::want_weights);
  cases.vary(&Case::want_lse);
  cases.vary(&Case::parameters_per_head);
  cases.vary(&Case::want_mass);
  cases.vary(&Case::want_entropy);
  cases.vary(&Case::want_effective);
  cases.vary(&Case::want_partial);
  cases.vary(std::array{false, true}, [](Case& c, bool rows) {
    for (std::int64_t i = c.Tq - 1; rows && i >= 0; i -= 3) c.want_rows.push_back(i);
  });
  // What an empty row gets is not its weights, and is not dropped; parts of dropped weights are nobody's business.
  cases.vary(std::array{0.0, 0.25}, [](Case& c, double dropout) {
    if (c.on_empty == OnEmpty::zero && !c.want_partial) c.dropout = dropout;
  });
  cases.vary(&Case::threads, std::array{1, 2, 3});
  cases.run();
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
