// attention/properties_test.cpp: what is true of attention whatever the numbers are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "reference/elements.h"
#include "support/close.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

// Two results of the same formula computed in another order: both are within a few roundings of the exact one. Outputs
// are averages of values of size 4 at most, over some hundred keys.
constexpr float same_formula = 4e-6f;

void expect_near(const View& a, const View& b, float tolerance = same_formula) {
  const auto x = reference::elements<float>(a), y = reference::elements<float>(b);
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], tolerance) << "element " << i;
}

// Few queries for the decode kernel, many for panels.
constexpr std::int64_t few_and_many[] = {2, 37};

TEST(Properties, WeightsSumToOneAndAreNotNegative) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Problem p(
          {.Tq = Tq, .Tk = 300, .D = 16, .Dv = 4, .masks = {MaskKind::causal, MaskKind::bias}, .want_weights = true});
      const Attended got = attend(p.q(), p.k(), p.v(), p.options());
      const auto weights = got.weights.values<float>(), lse = got.lse.values<float>();
      for (std::size_t row = 0; row < lse.size(); ++row) {
        double sum = 0;
        for (std::size_t j = 0; j < 300; ++j) {
          ASSERT_GE(weights[row * 300 + j], 0);
          sum += static_cast<double>(weights[row * 300 + j]);
        }
        // 300 weights, each rounded to 2^-24 of itself, and one rounding of their common factor.
        ASSERT_NEAR(sum, std::isinf(lse[row]) ? 0 : 1, 3e-6) << "row " << row;
      }
    }
  });
}

// The blocks of a narrow window are longer than others: sizes stand around two of them.
TEST(Properties, AWindowIsAKeepMaskOfItsPairs) {
  constexpr std::int64_t left = 100, right = 60;
  on_every_isa([] {
    for (const std::int64_t T : {575, 577, 767, 769, 1161}) {
      const Tensor q = random_tensor({1, 1, T, 16}, 1), k = random_tensor({1, 1, T, 16}, 2),
                   v = random_tensor({1, 1, T, 8}, 3);
      Tensor pairs({T, T}, Dtype::boolean);
      const auto kept = pairs.values<bool>();
      for (std::int64_t i = 0; i < T; ++i) {
        for (std::int64_t j = 0; j < T; ++j) {
          kept[static_cast<std::size_t>(i * T + j)] = i - left <= j && j <= i + right;
        }
      }
      const AttendOptions by_window{.mask = window(left, right), .want_lse = true};
      const AttendOptions by_pairs{.mask = keep(pairs), .want_lse = true};
      ASSERT_NE(plan(q, k, v, by_window).block, plan(q, k, v, by_pairs).block);
      const Attended a = attend(q, k, v, by_window), b = attend(q, k, v, by_pairs);
      expect_near(a.out, b.out);
      expect_near(a.lse, b.lse);
    }
  });
}

TEST(Properties, AnAverageOfEqualValuesIsThatValue) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensor q = random_tensor({1, 1, Tq, 16}, 1), k = random_tensor({1, 1, 300, 16}, 2);
      Tensor v({1, 1, 300, 8});
      std::ranges::fill(v.values<float>(), 3.0f);
      const Attended got = attend(q, k, v);
      for (const float x : got.out.values<float>()) ASSERT_NEAR(x, 3.0f, 3e-6f);
    }
  });
}

TEST(Properties, PermutingTheRecordsChangesNothing) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const std::int64_t Tk = 261;
      const Tensor q = random_tensor({Tq, 16}, 1), k = random_tensor({Tk, 16}, 2), v = random_tensor({Tk, 8}, 3);
      const Tensor added = random_tensor({Tk}, 4);
      std::vector<std::size_t> order(static_cast<std::size_t>(Tk));
      std::iota(order.begin(), order.end(), 0);
      Random random(5);
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
      }
      Tensor k2({Tk, 16}), v2({Tk, 8}), added2({Tk});
      for (std::size_t j = 0; j < order.size(); ++j) {
        std::ranges::copy(k.values<float>().subspan(order[j] * 16, 16),
                          k2.values<float>().begin() + static_cast<std::ptrdiff_t>(j * 16));
        std::ranges::copy(v.values<float>().subspan(order[j] * 8, 8),
                          v2.values<float>().begin() + static_cast<std::ptrdiff_t>(j * 8));
        added2.values<float>()[j] = added.values<float>()[order[j]];
      }
      const Attended a = attend(q, k, v, {.mask = bias(added), .want_lse = true});
      const Attended b = attend(q, k2, v2, {.mask = bias(added2), .want_lse = true});
      expect_near(a.out, b.out);
      expect_near(a.lse, b.lse);
    }
  });
}

TEST(Properties, ACausalPrefixEqualsTheShorterRun) {
  on_every_isa([] {
    const Tensor q = random_tensor({1, 2, 90, 16}, 1), k = random_tensor({1, 2, 90, 16}, 2),
                 v = random_tensor({1, 2, 90, 8}, 3);
    const Tensor whole = attend(q, k, v, {.mask = causal()}).out;
    for (const std::int64_t T : {1, 4, 5, 17, 48, 65, 89}) {
      const Tensor prefix =
          attend(q.view().slice(2, 0, T), k.view().slice(2, 0, T), v.view().slice(2, 0, T), {.mask = causal()}).out;
      expect_near(prefix, whole.view().slice(2, 0, T));
    }
  });
}

// Generating token by token over a growing cache gives what one pass over the whole text gives.
TEST(Properties, DecodingStepByStepEqualsTheFullPass) {
  on_every_isa([] {
    const Tensor q = random_tensor({2, 4, 70, 16}, 1), k = random_tensor({2, 2, 70, 16}, 2),
                 v = random_tensor({2, 2, 70, 8}, 3);
    const Tensor whole = attend(q, k, v, {.mask = causal()}).out;
    for (std::int64_t t = 0; t < 70; ++t) {
      const Tensor step = attend(q.view().slice(2, t, 1), k.view().slice(2, 0, t + 1), v.view().slice(2, 0, t + 1),
                                 {.mask = causal(bottom_right())})
                              .out;
      expect_near(step, whole.view().slice(2, t, 1));
    }
  });
}

TEST(Properties, GroupedHeadsEqualRepeatedHeads) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const std::int64_t group : {2, 3, 8}) {
        const Tensor q = random_tensor({2, 2 * group, Tq, 16}, 1), k = random_tensor({2, 2, 300, 16}, 2),
                     v = random_tensor({2, 2, 300, 8}, 3);
        Tensor k2({2, 2 * group, 300, 16}), v2({2, 2 * group, 300, 8});
        for (std::int64_t b = 0; b < 2; ++b) {
          for (std::int64_t h = 0; h < 2 * group; ++h) {
            const std::int64_t from = b * 2 + h / group, to = b * 2 * group + h;
            std::copy_n(k.values<float>().begin() + from * 300 * 16, 300 * 16,
                        k2.values<float>().begin() + to * 300 * 16);
            std::copy_n(v.values<float>().begin() + from * 300 * 8, 300 * 8, v2.values<float>().begin() + to * 300 * 8);
          }
        }
        expect_near(attend(q, k, v).out, attend(q, k2, v2).out);
      }
    }
  });
}

TEST(Properties, PaddingEqualsCutting) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensor q = random_tensor({1, 2, Tq, 16}, 1), k = random_tensor({1, 2, 600, 16}, 2),
                   v = random_tensor({1, 2, 600, 8}, 3);
      for (const std::int64_t length : {1, 5, 64, 257, 511, 599, 600}) {
        const Tensor lens = Tensor::of<std::int64_t>({length}, {1});
        const Tensor padded = attend(q, k, v, {.mask = lengths(lens)}).out;
        const Tensor cut = attend(q, k.view().slice(2, 0, length), v.view().slice(2, 0, length)).out;
        expect_near(padded, cut);
      }
    }
  });
}

TEST(Properties, AConstantAddedToAllScoresMovesOnlyTheLogSumExp) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensor q = random_tensor({Tq, 16}, 1), k = random_tensor({100, 16}, 2), v = random_tensor({100, 8}, 3);
      const Tensor seven = Tensor::of<float>({7}, {1});
      const Attended plain = attend(q, k, v, {.want_lse = true});
      const Attended moved = attend(q, k, v, {.mask = bias(seven), .want_lse = true});
      expect_near(plain.out, moved.out);
      for (std::size_t i = 0; i < static_cast<std::size_t>(Tq); ++i) {
        ASSERT_NEAR(moved.lse.values<float>()[i], plain.lse.values<float>()[i] + 7, 4e-6f);
      }
    }
  });
}

// Different ways to say the same thing.
TEST(Properties, KeepDropBiasAndLengthsSayTheSame) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const std::int64_t Tk = 150, length = 83;
      const Tensor q = random_tensor({1, 2, Tq, 16}, 1), k = random_tensor({1, 2, Tk, 16}, 2),
                   v = random_tensor({1, 2, Tk, 8}, 3);
      Tensor kept({1, Tk}, Dtype::boolean), dropped({1, Tk}, Dtype::boolean), added({1, Tk}),
          cells({1, 2}, Dtype::boolean);
      for (std::size_t j = 0; j < static_cast<std::size_t>(Tk); ++j) {
        const bool seen = j < static_cast<std::size_t>(length);
        kept.values<bool>()[j] = seen;
        dropped.values<bool>()[j] = !seen;
        added.values<float>()[j] = seen ? 0 : -std::numeric_limits<float>::infinity();
      }
      cells.values<bool>()[0] = true;
      const Tensor lens = Tensor::of<std::int64_t>({length}, {1});
      const Tensor expected = attend(q, k, v, {.mask = lengths(lens)}).out;
      expect_near(attend(q, k, v, {.mask = keep(kept)}).out, expected);
      expect_near(attend(q, k, v, {.mask = drop(dropped)}).out, expected);
      expect_near(attend(q, k, v, {.mask = bias(added)}).out, expected);
      expect_near(attend(q, k, v, {.mask = keep_keys(kept)}).out, expected);
      expect_near(attend(q, k, v, {.mask = block_mask(cells, Tq, length)}).out, expected);
      expect_near(attend(q, k, v, {.mask = causal(offset(length - Tq)) & window(-1, 0)}).out.view().slice(2, Tq - 1, 1),
                  expected.view().slice(2, Tq - 1, 1));
    }
  });
}

TEST(Properties, ScaledDotIsDotWithTheScale) {
  const Tensor q = random_tensor({9, 16}, 1), k = random_tensor({20, 16}, 2), v = random_tensor({20, 8}, 3);
  EXPECT_TRUE(same_bits(attend(q, k, v).out, attend(q, k, v, {.score = dot(), .scale = 0.25}).out));
  expect_right(q, k, v, {.score = dot(), .want_lse = true});
  expect_right(q, k, v, {.scale = -0.7, .want_lse = true});
  expect_right(q, k, v, {.scale = 0, .want_lse = true});
}

}  // namespace
}  // namespace qkv::test
