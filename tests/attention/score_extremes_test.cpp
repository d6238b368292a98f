// attention/score_extremes_test.cpp: the ends of the range of scores: saturated, tiny and infinite.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <qkv/attend.h>

#include "reference/attend.h"
#include "support/close.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t few_and_many[] = {1, 4, 5, 40};

// Queries and keys of one number each, which are their own projections; E hidden units of the same.
struct Additive {
  Tensor Wq, Wk, w;
  Additive(std::int64_t E, float weight) : Wq({E, 1}), Wk({E, 1}), w({E}) {
    for (Tensor* x : {&Wq, &Wk}) std::ranges::fill(x->values<float>(), 1.0f);
    std::ranges::fill(w.values<float>(), weight / static_cast<float>(E));
  }
  Score score() const { return additive(Wq, Wk, w); }
};

Tensor scores_of(const Additive& a, const std::vector<float>& queries, const std::vector<float>& keys) {
  const auto Tq = static_cast<std::int64_t>(queries.size()), Tk = static_cast<std::int64_t>(keys.size());
  const Tensor v({Tk, 1});
  return attend(View(queries, {Tq, 1}), View(keys, {Tk, 1}), v, {.score = a.score(), .want_scores = ScoreStage::scaled})
      .scores;
}

// tanh over the whole line: relative error for small arguments, 1 for large ones, odd, monotone.
TEST(AdditiveExtremes, ProjectionsOfEverySize) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const std::int64_t E : {1, 5, 16}) {
        const Additive a(E, 1);
        std::vector<float> keys;
        for (double x = 1e-30; x < 2e4; x *= 1.37) {
          keys.push_back(static_cast<float>(x));
          keys.push_back(static_cast<float>(-x));
        }
        const std::vector<float> zeros(static_cast<std::size_t>(Tq), 0.0f);
        const Tensor scores = scores_of(a, zeros, keys);
        for (std::size_t n = 0; n < scores.values<float>().size(); ++n) {
          const double exact = std::tanh(static_cast<double>(keys[n % keys.size()]));
          // A few roundings of tanh, and those of E terms.
          ASSERT_NEAR(scores.values<float>()[n], exact,
                      (4 + static_cast<double>(E)) * 0x1p-23 * std::abs(exact) + 1e-37)
              << "tanh of " << keys[n % keys.size()];
          ASSERT_LE(std::abs(scores.values<float>()[n]), 1.0001f);
        }
      }
    }
  });
}

TEST(AdditiveExtremes, SaturatedUnitsAreOne) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Additive a(1, 1);
      for (const float size : {20.0f, 100.0f, 1e4f, 1e20f, 3e38f, infinity}) {
        const std::vector<float> zeros(static_cast<std::size_t>(Tq), 0.0f);
        const Tensor scores = scores_of(a, zeros, {size, -size, size});
        for (std::size_t n = 0; n < scores.values<float>().size(); ++n) {
          ASSERT_NEAR(scores.values<float>()[n], n % 3 == 1 ? -1.0f : 1.0f, 2e-7f) << size;
        }
      }
    }
  });
}

TEST(AdditiveExtremes, LargeProjectionsThatCancelDoNotSaturate) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Additive a(3, 2);
      // 1e4 and the numbers below it are exact in float32 to 2^-10.
      const std::vector<float> queries(static_cast<std::size_t>(Tq), 1e4f),
          keys = {-1e4f, -1e4f + 0.5f, -1e4f - 0.25f, -9990.0f, 1e4f};
      const Tensor scores = scores_of(a, queries, keys);
      for (std::size_t n = 0; n < scores.values<float>().size(); ++n) {
        const double sum = 1e4 + static_cast<double>(keys[n % 5]);
        ASSERT_NEAR(scores.values<float>()[n], 2 * std::tanh(sum), 2e-6) << sum;
      }
    }
  });
}

// |projection| up to 1e4, mixed, against the reference.
TEST(AdditiveExtremes, WeightsOfLargeProjections) {
  on_every_isa([] {
    for (const double size : {10.0, 1e2, 1e3, 1e4}) {
      for (const std::int64_t Tq : few_and_many) {
        const Tensor q = random_tensor({1, 2, Tq, 5}, 1), k = random_tensor({1, 1, 90, 4}, 2),
                     v = random_tensor({1, 1, 90, 3}, 3);
        const Tensor Wq = random_tensor({7, 5}, 4, Dtype::float32, size),
                     Wk = random_tensor({7, 4}, 5, Dtype::float32, size), w = random_tensor({7}, 6);
        const AttendOptions options = {.score = additive(Wq, Wk, w), .want_lse = true, .want_weights = true};
        expect_right(q, k, v, options);
        for (const Attended held = attend(q, k, v, options); const float x : held.out.values<float>())
          ASSERT_TRUE(std::isfinite(x));
      }
    }
  });
}

TEST(AdditiveExtremes, LargeOutputWeights) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Additive a(1, 1e4f);
      Tensor q({Tq, 1});
      const Tensor k = Tensor::of<float>({-0.5f, 0.25f, 2, -3}, {4, 1}), v = Tensor::of<float>({1, 2, 3, 4}, {4, 1});
      for (const Attended held = attend(q, k, v, {.score = a.score()}); const float x : held.out.values<float>())
        EXPECT_EQ(x, 3);
    }
  });
}

TEST(KernelExtremes, BandwidthsOfEverySize) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensor q = random_tensor({Tq, 3}, 1), k = random_tensor({60, 3}, 2), v = random_tensor({60, 2}, 3);
      for (const double sigma : {1e-15, 1e-5, 1e3, 1e15}) {
        for (const Score& score : {gaussian(sigma), laplace(sigma)}) {
          for (const Weigh& weigh : {softmax(), normalize(), raw(), top_k(3)}) {
            const Attended got = attend(q, k, v, {.score = score, .weigh = weigh});
            const Tensor expected = attend(q, k, v,
                                           sigma < 1 ? AttendOptions{.score = laplace(), .weigh = hard()}
                                                     : AttendOptions{.weigh = uniform()})
                                        .out;
            for (std::size_t n = 0; n < got.out.values<float>().size(); ++n) {
              const float x = got.out.values<float>()[n];
              ASSERT_TRUE(std::isfinite(x)) << sigma;
              if (weigh.kind == Weigh::Kind::softmax || weigh.kind == Weigh::Kind::normalize) {
                // A score of -1e33 in float32 ties with its neighbours; at 1e-5 the nearest wins by far.
                if (sigma > 1e-10) {
                  ASSERT_NEAR(x, expected.values<float>()[n], 2e-3f) << sigma;
                }
              }
              if (weigh.kind == Weigh::Kind::raw && sigma < 1) {
                ASSERT_EQ(x, 0);
              }
            }
          }
        }
      }
    }
  });
}

// A query at a key is nearer than anything else at any bandwidth.
TEST(KernelExtremes, ATinyBandwidthFindsTheKeyItself) {
  on_every_isa([] {
    const Tensor x = random_tensor({40, 3}, 1), v = random_tensor({40, 2}, 2);
    for (const double sigma : {1e-2, 1e-4}) {
      for (const Score& score :
           {laplace(sigma), boxcar(sigma), triangular(sigma), epanechnikov(sigma), gaussian(sigma)}) {
        const Tensor out = attend(x, x, v, {.score = score}).out;
        for (std::size_t n = 0; n < 80; ++n) ASSERT_NEAR(out.values<float>()[n], v.values<float>()[n], 1e-5f);
      }
    }
  });
}

TEST(RawExtremes, LargeAndSmallWeightsComeAsTheyAre) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      Tensor q({Tq, 1});
      std::ranges::fill(q.values<float>(), 1.0f);
      const Tensor k = Tensor::of<float>({1e30f, -2e-30f, 0}, {3, 1}),
                   v = Tensor::of<float>({1e-30f, 1e30f, 5}, {3, 1});
      const Attended got = attend(q, k, v, {.score = dot(), .weigh = raw(), .want_weights = true});
      for (const float x : got.out.values<float>()) EXPECT_FLOAT_EQ(x, 1 - 2.0f);
      EXPECT_FLOAT_EQ(got.weights.values<float>()[0], 1e30f);
      EXPECT_FLOAT_EQ(got.weights.values<float>()[1], -2e-30f);
      EXPECT_EQ(got.weights.values<float>()[2], 0);
    }
  });
}

TEST(RawExtremes, AKernelsBiasIsAFactor) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensor q({Tq, 1}), k({2, 1}), v = Tensor::of<float>({1, 0, 0, 1}, {2, 2});
      const Tensor added = Tensor::of<float>({std::log(8.0f), -std::log(4.0f)}, {2});
      const Attended got = attend(q, k, v, {.score = gaussian(), .mask = bias(added), .weigh = raw()});
      for (std::size_t i = 0; i < static_cast<std::size_t>(Tq); ++i) {
        EXPECT_NEAR(got.out.values<float>()[i * 2], 8, 1e-5f);
        EXPECT_NEAR(got.out.values<float>()[i * 2 + 1], 0.25f, 1e-6f);
      }
    }
  });
}

TEST(TemperatureExtremes, VeryHotAndVeryCold) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensor q = random_tensor({Tq, 8}, 1), k = random_tensor({70, 8}, 2), v = random_tensor({70, 3}, 3);
      const Tensor best = attend(q, k, v, {.weigh = hard()}).out, mean = attend(q, k, v, {.weigh = uniform()}).out;
      const Tensor cold = attend(q, k, v, {.temperature = 1e-6}).out, hot = attend(q, k, v, {.temperature = 1e20}).out;
      for (std::size_t n = 0; n < best.values<float>().size(); ++n) {
        ASSERT_NEAR(cold.values<float>()[n], best.values<float>()[n], 1e-6f);
        ASSERT_NEAR(hot.values<float>()[n], mean.values<float>()[n], 1e-6f);
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
