// attention/covering_test.cpp: sizes on both sides of every tile, vector and block, with instruction sets, dtypes,
// layouts, masks and options, every pair of choices at least once.
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "support/covering_cases.h"

namespace qkv::test {
namespace {

constexpr auto f32 = Dtype::float32, f64 = Dtype::float64, f16 = Dtype::float16, bf16 = Dtype::bfloat16;
const std::vector<Dtypes> dtypes = {
    {f32, f32, f32},   {f64, f64, f64},       {f16, f16, f16},       {bf16, bf16, bf16},    {f32, f16, f16},
    {f32, bf16, bf16}, {f16, f32, bf16, f32}, {bf16, f16, f32, f16}, {f32, f32, f16, bf16}, {f32, f16, f32, f16},
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
const std::vector<std::int64_t> widths = {0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 40, 64, 80, 96, 128, 130};

// Runs a covering array over these lengths and everything above.
void run_covering(const std::vector<std::int64_t>& queries, const std::vector<std::int64_t>& keys) {
  CoveringCases cases;
  cases.vary(&Case::Tq, queries);
  cases.vary(&Case::Tk, keys);
  cases.vary(&Case::D, widths);
  cases.vary(&Case::Dv, widths);
  cases.vary(dtypes);
  cases.vary(heads);
  cases.vary(&Case::masks, masks);
  cases.vary(&Case::alignment, all_alignments);
  cases.vary(&Case::layout, all_layouts);
  cases.vary(&Case::on_empty, all_answers_to_empty);
  cases.vary(&Case::want_scores, all_score_stages);
  cases.vary(&Case::softcap, std::array{0.0, 2.5});
  cases.vary(&Case::want_weights);
  cases.vary(&Case::want_lse);
  cases.vary(&Case::threads, std::array{1, 2, 3});
  cases.run();
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
