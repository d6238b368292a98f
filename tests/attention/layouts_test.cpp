// attention/layouts_test.cpp: any strides of inputs, masks and results, and every rank.
#include <gtest/gtest.h>

#include "reference/elements.h"
#include "support/close.h"
#include "support/isas.h"
#include "support/layout.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

TEST(Layouts, EveryLayoutOfQueriesWithEveryLayoutOfKeysAndValues) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 21}) {
      const Tensor q = random_tensor({2, 4, Tq, 17}, 1), k = random_tensor({2, 2, 35, 17}, 2),
                   v = random_tensor({2, 2, 35, 9}, 3);
      for (const Layout query : all_layouts) {
        for (const Layout key : all_layouts) {
          for (const Layout value : {Layout::dense, key}) {
            SCOPED_TRACE(std::string(name_of(query)) + " asks " + std::string(name_of(key)));
            const LaidOut a(q, query), b(k, key), c(v, value);
            expect_right(a.view(), b.view(), c.view(), {.want_lse = true});
          }
        }
      }
    }
  });
}

TEST(Layouts, ALayoutDoesNotChangeTheBits) {
  const Tensor q = random_tensor({2, 4, 21, 16}, 1), k = random_tensor({2, 2, 35, 16}, 2),
               v = random_tensor({2, 2, 35, 8}, 3);
  const Attended dense = attend(q, k, v);
  for (const Layout layout : writable_layouts) {
    const LaidOut a(q, layout), b(k, layout), c(v, layout);
    EXPECT_TRUE(same_bits(attend(a.view(), b.view(), c.view()).out, dense.out)) << name_of(layout);
  }
}

TEST(Layouts, ResultsGoToAnyStridesAndTouchNothingElse) {
  on_every_isa([] {
    for (const std::int64_t Tq : {2, 21}) {
      const Tensor q = random_tensor({2, 4, Tq, 16}, 1), k = random_tensor({2, 2, 35, 16}, 2),
                   v = random_tensor({2, 2, 35, 7}, 3);
      const AttendOptions options = {
          .mask = causal(top_left()), .want_lse = true, .want_weights = true, .want_scores = ScoreStage::biased};
      const Attended whole = attend(q, k, v, options);
      for (const Layout layout : writable_layouts) {
        SCOPED_TRACE(name_of(layout));
        const LaidOut out({2, 4, Tq, 7}, Dtype::float32, layout), weights({2, 4, Tq, 35}, Dtype::float32, layout),
            scores({2, 4, Tq, 35}, Dtype::float32, layout), lse({2, 4, Tq, 1}, Dtype::float32, layout);
        const MutableView column = lse.view();
        const MutableView lse_view(column.data(), Dtype::float32, {2, 4, Tq},
                                   {column.stride(0), column.stride(1), column.stride(2)});
        attend_into(q, k, v, {.out = out.view(), .lse = lse_view, .weights = weights.view(), .scores = scores.view()},
                    options);
        EXPECT_TRUE(same_bits(Tensor::copy_of(out.view()), whole.out));
        EXPECT_TRUE(same_bits(Tensor::copy_of(lse_view), whole.lse));
        EXPECT_TRUE(same_bits(Tensor::copy_of(weights.view()), whole.weights));
        EXPECT_TRUE(same_bits(Tensor::copy_of(scores.view()), whole.scores));
        for (const LaidOut* memory : {&out, &weights, &scores, &lse}) EXPECT_TRUE(memory->gaps_are_untouched());
      }
    }
  });
}

TEST(Layouts, HalfPrecisionResultsGoToAnyStrides) {
  const Tensor q = random_tensor({2, 4, 21, 16}, 1), k = random_tensor({2, 2, 35, 16}, 2),
               v = random_tensor({2, 2, 35, 7}, 3);
  for (const Dtype dtype : {Dtype::float16, Dtype::bfloat16}) {
    const Attended whole = attend(q, k, v, {.out_dtype = dtype});
    for (const Layout layout : writable_layouts) {
      const LaidOut out({2, 4, 21, 7}, dtype, layout);
      attend_into(q, k, v, {.out = out.view()}, {.out_dtype = dtype});
      EXPECT_TRUE(same_bits(Tensor::copy_of(out.view()), whole.out)) << name_of(layout);
      EXPECT_TRUE(out.gaps_are_untouched()) << name_of(layout);
    }
  }
}

TEST(Layouts, MasksMayHaveAnyStrides) {
  on_every_isa([] {
    const Tensor q = random_tensor({2, 2, 9, 8}, 1), k = random_tensor({2, 2, 37, 8}, 2),
                 v = random_tensor({2, 2, 37, 8}, 3);
    const Tensor kept = random_booleans({2, 2, 9, 37}, 4, 0.6), added = random_tensor({2, 2, 9, 37}, 5);
    for (const Layout layout : all_layouts) {
      SCOPED_TRACE(name_of(layout));
      const LaidOut a(kept, layout), b(added, layout);
      expect_right(q, k, v, {.mask = keep(a.view())});
      expect_right(q, k, v, {.mask = drop(a.view()) & bias(b.view())});
    }
  });
}

TEST(Layouts, LengthsSlopesAndOffsetsMayHaveAnyStride) {
  const Tensor q = random_tensor({3, 2, 5, 8}, 1), k = random_tensor({3, 2, 7, 8}, 2),
               v = random_tensor({3, 2, 7, 8}, 3);
  const std::vector<std::int64_t> lens = {7, 99, 0, 99, 4}, offsets = {1, 99, 2, 99, -3};
  const std::vector<float> slopes = {0.5f, 99, 0.25f};
  expect_right(q, k, v, {.mask = lengths(View(lens.data(), {3}, {2}))});
  expect_right(q, k, v, {.mask = alibi(View(slopes.data(), {2}, {2}), top_left())});
  expect_right(q, k, v, {.mask = causal(offset(View(offsets.data(), {3}, {2})))});
  expect_right(q, k, v, {.mask = lengths(View(lens.data() + 4, {3}, {-2}))});
}

TEST(Ranks, RankTwoIsOneSequenceAndOneHead) {
  const Tensor q = random_tensor({7, 8}, 1), k = random_tensor({11, 8}, 2), v = random_tensor({11, 5}, 3);
  const AttendOptions all = {.want_lse = true, .want_weights = true, .want_scores = ScoreStage::scaled};
  expect_right(q, k, v, all);
  const Attended flat = attend(q, k, v, all);
  const Attended whole =
      attend(View(q.view().data(), Dtype::float32, {1, 1, 7, 8}), View(k.view().data(), Dtype::float32, {1, 1, 11, 8}),
             View(v.view().data(), Dtype::float32, {1, 1, 11, 5}), all);
  EXPECT_EQ(flat.out.shape(), (Shape{7, 5}));
  EXPECT_EQ(flat.lse.shape(), (Shape{7}));
  EXPECT_EQ(flat.weights.shape(), (Shape{7, 11}));
  EXPECT_EQ(flat.scores.shape(), (Shape{7, 11}));
  EXPECT_EQ(reference::elements<float>(flat.out), reference::elements<float>(whole.out));
}

TEST(Ranks, RankThreeIsOneHead) {
  const Tensor q = random_tensor({3, 7, 8}, 1), k = random_tensor({3, 11, 8}, 2), v = random_tensor({3, 11, 5}, 3);
  const Tensor lens = Tensor::of<std::int32_t>({11, 4, 0}, {3});
  expect_right(q, k, v,
               {.mask = lengths(lens), .want_lse = true, .want_weights = true, .want_scores = ScoreStage::biased});
  EXPECT_EQ(attend(q, k, v).out.shape(), (Shape{3, 7, 5}));
}

TEST(Ranks, MasksOfEveryRankBroadcastFromTheRight) {
  on_every_isa([] {
    const std::int64_t B = 2, H = 3, Tk = 10;
    for (const std::int64_t Tq : {3, 6}) {
      const Tensor q = random_tensor({B, H, Tq, 4}, 1), k = random_tensor({B, H, Tk, 4}, 2),
                   v = random_tensor({B, H, Tk, 4}, 3);
      for (const Shape& shape :
           {Shape{}, Shape{1}, Shape{Tk}, Shape{Tq, 1}, Shape{1, Tk}, Shape{Tq, Tk}, Shape{H, Tq, Tk}, Shape{H, 1, 1},
            Shape{1, Tq, Tk}, Shape{B, 1, 1, Tk}, Shape{B, H, 1, 1}, Shape{1, H, Tq, Tk}, Shape{B, 1, Tq, 1},
            Shape{B, H, Tq, Tk}, Shape{1, 1, 1, 1}}) {
        SCOPED_TRACE(shape.text());
        const Tensor kept = random_booleans(shape, 4, 0.6), added = random_tensor(shape, 5);
        expect_right(q, k, v, {.mask = keep(kept)});
        expect_right(q, k, v, {.mask = drop(kept)});
        expect_right(q, k, v, {.mask = bias(added)});
      }
    }
  });
}

TEST(Ranks, ABlockMaskBroadcastsOverSequencesAndHeads) {
  on_every_isa([] {
    const Tensor q = random_tensor({2, 3, 37, 4}, 1), k = random_tensor({2, 3, 150, 4}, 2),
                 v = random_tensor({2, 3, 150, 4}, 3);
    for (const Shape& front : {Shape{}, Shape{3}, Shape{1}, Shape{2, 1}, Shape{1, 3}, Shape{2, 3}}) {
      std::vector<std::int64_t> extents(front.begin(), front.end());
      extents.insert(extents.end(), {3, 3});
      const Tensor cells = random_booleans(Shape(extents), 4, 0.5);
      SCOPED_TRACE(cells.shape().text());
      expect_right(q, k, v, {.mask = block_mask(cells, 16, 64)});
    }
  });
}

}  // namespace
}  // namespace qkv::test
