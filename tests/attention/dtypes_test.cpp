// attention/dtypes_test.cpp: float64, and half precision as storage.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr Dtype storage[] = {Dtype::float32, Dtype::float16, Dtype::bfloat16};

TEST(Dtypes, Float32AndTheHalvesMixFreely) {
  on_every_isa([] {
    for (const Dtype q : storage) {
      for (const Dtype k : storage) {
        for (const Dtype v : storage) {
          for (const Dtype out : storage) {
            for (const std::int64_t Tq : {1, 19}) {
              expect_right(
                  {.B = 1, .H = 4, .Hk = 2, .Tq = Tq, .Tk = 70, .D = 19, .Dv = 18, .q = q, .k = k, .v = v, .out = out});
            }
          }
        }
      }
    }
  });
}

TEST(Dtypes, TheOutputHasTheQueriesDtypeUnlessSaid) {
  for (const Dtype dtype : storage) {
    const Tensor x = random_tensor({5, 4}, 1, dtype);
    EXPECT_EQ(attend(x, x, x).out.dtype(), dtype);
  }
}

TEST(Dtypes, StatisticsOfHalvesAreFloat32) {
  const Tensor x = random_tensor({5, 4}, 1, Dtype::float16);
  const Attended all = attend(x, x, x, {.want_lse = true, .want_weights = true, .want_scores = ScoreStage::scaled});
  EXPECT_EQ(all.lse.dtype(), Dtype::float32);
  EXPECT_EQ(all.weights.dtype(), Dtype::float32);
  EXPECT_EQ(all.scores.dtype(), Dtype::float32);
}

TEST(Dtypes, Float64IsComputedInFloat64) {
  on_every_isa([] {
    constexpr Dtype f64 = Dtype::float64;
    for (const std::int64_t D : {1, 7, 8, 64, 130}) {
      for (const std::int64_t Tq : {1, 4, 5, 27}) {
        for (const std::int64_t Tk : {1, 8, 65, 300}) {
          expect_right({.H = 4,
                        .Tq = Tq,
                        .Tk = Tk,
                        .D = D,
                        .Dv = D,
                        .q = f64,
                        .k = f64,
                        .v = f64,
                        .masks = {MaskKind::causal, MaskKind::bias},
                        .softcap = 3,
                        .want_weights = true,
                        .want_scores = ScoreStage::biased});
        }
      }
    }
  });
}

TEST(Dtypes, Float64ScoresOfAThousandKeepTheirPrecision) {
  constexpr Dtype f64 = Dtype::float64;
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 9}) {
      expect_right({.Tq = Tq,
                    .Tk = 40,
                    .D = 16,
                    .Dv = 16,
                    .q = f64,
                    .k = f64,
                    .v = f64,
                    .want_weights = true,
                    .magnitude = 1000});
    }
  });
}

// Half precision on its own terms: the largest value, subnormal ones, infinities.
TEST(Dtypes, TheEndsOfFloat16ComeThrough) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 6}) {
      const Tensor q({Tq, 1}, Dtype::float16), k({2, 1}, Dtype::float16);
      for (const float value : {65504.0f, -65504.0f, 0x1p-24f, 0x1p-15f, 0.0f}) {
        const Tensor v = Tensor::of<Float16>({Float16(value), Float16(value)}, {2, 1});
        const Attended got = attend(q, k, v);
        for (const Float16 x : got.out.values<Float16>()) EXPECT_EQ(static_cast<float>(x), value);
      }
    }
  });
}

TEST(Dtypes, WhatDoesNotFitInFloat16BecomesInfinite) {
  const Tensor q({6, 1}), k({2, 1});
  const Tensor v = Tensor::of<float>({1e6f, 1e6f}, {2, 1});
  const Attended got = attend(q, k, v, {.out_dtype = Dtype::float16});
  for (const Float16 x : got.out.values<Float16>()) {
    EXPECT_EQ(static_cast<float>(x), std::numeric_limits<float>::infinity());
  }
}

}  // namespace
}  // namespace qkv::test
