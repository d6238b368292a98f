// attention/scores_test.cpp: every score over sizes around every width that a kernel could have, in every form of its
// parameters.
#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>

#include <gtest/gtest.h>

#include "support/close.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/layout.h"
#include "support/matrix.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr auto f32 = Dtype::float32, f64 = Dtype::float64, f16 = Dtype::float16, bf16 = Dtype::bfloat16;
constexpr Score::Kind kernels[] = {Score::Kind::gaussian,   Score::Kind::laplace,      Score::Kind::boxcar,
                                   Score::Kind::triangular, Score::Kind::epanechnikov, Score::Kind::constant};
constexpr Score::Kind products[] = {Score::Kind::dot, Score::Kind::scaled_dot, Score::Kind::cosine,
                                    Score::Kind::bilinear};

// One test per score, so that what fails has a name.
class EveryScore : public testing::TestWithParam<Score::Kind> {
 public:
  static std::string name(const testing::TestParamInfo<Score::Kind>& info) {
    return std::string(score_name(info.param));
  }
};
INSTANTIATE_TEST_SUITE_P(Scores, EveryScore, testing::ValuesIn(all_score_kinds), EveryScore::name);

TEST_P(EveryScore, IsRightAtEveryWidth) {
  on_every_isa([&] {
    for (const std::int64_t D : {0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 40, 64, 80, 130}) {
      for (const std::int64_t Tq : {3, 7}) {
        expect_right({.B = 1, .H = 2, .Hk = 1, .Tq = Tq, .Tk = 21, .D = D, .Dv = 5, .score = GetParam(), .E = 5});
        if (!takes_two_widths(GetParam())) continue;
        for (const std::int64_t Dk : {0, 1, 6, 8, 19, 32}) {
          expect_right({.B = 1, .H = 2, .Hk = 1, .Tq = Tq, .Tk = 21, .D = D, .Dv = 5, .score = GetParam(), .Dk = Dk});
        }
      }
    }
  });
}

TEST_P(EveryScore, IsRightForEveryNumberOfQueries) {
  on_every_isa([&] {
    for (std::int64_t Tq = 0; Tq <= 50; Tq += full_matrix() || Tq < 20 ? 1 : 5) {
      expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = 19, .D = 8, .Dv = 8, .score = GetParam()});
      expect_right({.B = 1,
                    .H = 1,
                    .Hk = 1,
                    .Tq = Tq,
                    .Tk = Tq,
                    .D = 8,
                    .Dv = 8,
                    .masks = {MaskKind::causal},
                    .score = GetParam()});
    }
  });
}

TEST_P(EveryScore, IsRightForEveryNumberOfKeys) {
  on_every_isa([&] {
    for (const std::int64_t Tk : {0,  1,  2,   3,   4,   5,   7,   8,   9,   15,  16,  17,  31,  33,  63,
                                  64, 65, 127, 128, 129, 191, 193, 255, 256, 257, 300, 511, 512, 513, 600}) {
      for (const std::int64_t Tq : {2, 9}) {
        expect_right({.B = 1, .H = 1, .Hk = 1, .Tq = Tq, .Tk = Tk, .D = 8, .Dv = 8, .score = GetParam()});
      }
    }
  });
}

TEST_P(EveryScore, IsRightOverLongStreamsOfKeys) {
  on_every_isa([&] {
    for (const std::int64_t Tk : {1025, 4097, 8193}) {
      for (const std::int64_t Tq : {1, 4, 5}) {
        expect_right({.B = 1, .H = 2, .Hk = 1, .Tq = Tq, .Tk = Tk, .D = 6, .Dv = 7, .score = GetParam(), .E = 3});
      }
    }
  });
}

TEST_P(EveryScore, IsRightInEveryDtype) {
  struct Types {
    Dtype q, k, v, parameters;
  };
  on_every_isa([&] {
    for (const Types& t : {Types{f64, f64, f64, f64}, Types{f16, f16, f16, f16}, Types{bf16, bf16, bf16, bf16},
                           Types{f32, f16, bf16, f32}, Types{f16, f32, f32, bf16}, Types{bf16, f16, f32, f16}}) {
      for (const std::int64_t Tq : {1, 4, 5, 19}) {
        for (const std::int64_t Tk : {20, 130}) {
          expect_right({.B = 1,
                        .H = 4,
                        .Hk = 2,
                        .Tq = Tq,
                        .Tk = Tk,
                        .D = 11,
                        .Dv = 18,
                        .q = t.q,
                        .k = t.k,
                        .v = t.v,
                        .masks = {Tk < 100 ? MaskKind::bias : MaskKind::alibi},
                        .want_weights = true,
                        .score = GetParam(),
                        .Dk = 9,
                        .parameters = t.parameters});
        }
      }
    }
  });
}

TEST_P(EveryScore, ParametersAreSharedByTheHeadsOrDiffer) {
  on_every_isa([&] {
    for (const std::int64_t Hk : {1, 2, 6}) {
      for (const std::int64_t Tq : {2, 20}) {
        for (const Bandwidth bandwidth : all_bandwidths) {
          for (const bool per_head : {false, true}) {
            expect_right({.B = 2,
                          .H = 6,
                          .Hk = Hk,
                          .Tq = Tq,
                          .Tk = 37,
                          .D = 7,
                          .Dv = 4,
                          .score = GetParam(),
                          .Dk = 10,
                          .parameters_per_head = per_head,
                          .bandwidth = bandwidth});
          }
        }
      }
    }
  });
}

TEST_P(EveryScore, GoesThroughEveryStage) {
  on_every_isa([&] {
    for (const ScoreStage stage : {ScoreStage::scaled, ScoreStage::capped, ScoreStage::biased}) {
      for (const std::int64_t Tq : {3, 18}) {
        for (const double temperature : {1.0, 0.5, 3.0}) {
          expect_right({.Tq = Tq,
                        .Tk = 70,
                        .masks = {MaskKind::bias, MaskKind::edit_by, MaskKind::keep},
                        .softcap = 1.5,
                        .want_scores = stage,
                        .score = GetParam(),
                        .temperature = temperature});
        }
      }
    }
  });
}

TEST_P(EveryScore, TakesKeysInEveryLayout) {
  on_every_isa([&] {
    for (const Layout layout : all_layouts) {
      for (const std::int64_t Tq : {3, 18}) {
        expect_right({.H = 4, .Tq = Tq, .Tk = 35, .D = 9, .layout = layout, .score = GetParam(), .Dk = 12});
      }
    }
  });
}

TEST_P(EveryScore, TakesRankTwoAndThree) {
  for (const std::int64_t Tq : {3, 18}) {
    const Problem p({.B = 3, .H = 1, .Hk = 1, .Tq = Tq, .Tk = 35, .score = GetParam()});
    const auto without = [](const View& x, bool batch) {
      return batch ? View(x.data(), x.dtype(), {x.extent(0), x.extent(2), x.extent(3)})
                   : View(x.data(), x.dtype(), {x.extent(2), x.extent(3)});
    };
    for (const bool batch : {false, true}) {
      expect_right(without(p.q(), batch), without(p.k(), batch), without(p.v(), batch), p.options());
    }
  }
}

TEST(Scores, ProductsTakeAScale) {
  on_every_isa([] {
    for (const Score::Kind score : products) {
      for (const double scale : {0.3, -0.7, 0.0, 2.0}) {
        for (const std::int64_t Tq : {3, 18}) {
          expect_right({.Tq = Tq, .Tk = 40, .scale = scale, .want_weights = true, .score = score});
        }
      }
    }
  });
}

TEST(Scores, AdditiveIsRightAtEveryHiddenWidth) {
  on_every_isa([] {
    for (const std::int64_t E : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100}) {
      for (const std::int64_t Tq : {1, 4, 5, 17}) {
        expect_right({.B = 1, .H = 2, .Hk = 1, .Tq = Tq, .Tk = 70, .D = 6, .score = Score::Kind::additive, .E = E});
      }
    }
  });
}

TEST(Scores, ParametersMayHaveAnyStrides) {
  on_every_isa([] {
    const Tensor q = random_tensor({2, 2, 7, 5}, 1), k = random_tensor({2, 2, 30, 4}, 2),
                 v = random_tensor({2, 2, 30, 3}, 3);
    const Tensor M = random_tensor({4, 5}, 4), Wq = random_tensor({5, 2, 6}, 5), Wk = random_tensor({6, 2, 8}, 6),
                 w = random_tensor({6, 2}, 7), sigmas = random_tensor({5, 2}, 8);
    Tensor sigma({5, 2});
    for (std::size_t n = 0; n < 10; ++n) sigma.values<float>()[n] = 1 + std::abs(sigmas.values<float>()[n]);
    expect_right(q, k, v, {.score = bilinear(M.view().swapped(0, 1)), .want_lse = true});
    // Wq is [H, E, Dq] seen through swapped axes; of Wk every second column; w by columns.
    const View Wq_heads = Wq.view().swapped(0, 2).swapped(0, 1);
    const View Wk_shared(Wk.view().as<float>(), {6, 4}, {16, 2});
    expect_right(q, k, v, {.score = additive(Wq_heads, Wk_shared, w.view().swapped(0, 1)), .want_lse = true});
    const Tensor k5 = random_tensor({2, 2, 30, 5}, 9);
    expect_right(q, k5, v, {.score = gaussian(sigma.view().swapped(0, 1)), .want_lse = true});
    expect_right(q, k5, v, {.score = laplace(View(sigma.view().as<float>() + 1, {5}, {2})), .want_lse = true});
  });
}

TEST(Scores, ABandwidthIsANumberOrAnArray) {
  on_every_isa([] {
    for (const Score::Kind kind : kernels) {
      const Problem p({.Tq = 7, .Tk = 40, .score = kind});
      const double sigma = p.options().score.bandwidth;
      const auto narrow = static_cast<float>(sigma);
      const Tensor one = Tensor::of<float>({narrow}, {1}),
                   each = Tensor::of<float>({narrow, narrow, narrow, narrow, narrow}, {5}),
                   heads = Tensor::of<float>({narrow, narrow}, {2, 1});
      AttendOptions options = p.options();
      const Tensor expected = attend(p.q(), p.k(), p.v(), options).out;
      for (const Tensor* array : {&one, &each, &heads}) {
        options.score = {.kind = kind, .bandwidths = *array};
        const Tensor out = attend(p.q(), p.k(), p.v(), options).out;
        for (std::size_t n = 0; n < out.values<float>().size(); ++n) {
          // sigma is rounded to float32, here or there: 2 roundings of a score of about 1.
          ASSERT_NEAR(out.values<float>()[n], expected.values<float>()[n], 2e-6f) << score_name(kind);
        }
      }
    }
  });
}

TEST(Scores, CosineWithAZeroVectorIsZero) {
  on_every_isa([] {
    for (const std::int64_t Tq : {2, 20}) {
      const Problem p({.B = 1,
                       .H = 1,
                       .Hk = 1,
                       .Tq = Tq,
                       .Tk = 30,
                       .D = 6,
                       .want_scores = ScoreStage::scaled,
                       .score = Score::Kind::cosine});
      for (std::int64_t d = 0; d < 6; ++d) {
        set_element(p.q(), p.q().stride(2) + d, 0);
        set_element(p.k(), 7 * p.k().stride(2) + d, d % 2 == 0 ? 0.0 : -0.0);
      }
      const Attended got = attend(p.q(), p.k(), p.v(), p.options());
      for (std::size_t j = 0; j < 30; ++j) EXPECT_EQ(got.scores.values<float>()[30 + j], 0);
      for (std::size_t i = 0; i < static_cast<std::size_t>(Tq); ++i)
        EXPECT_EQ(got.scores.values<float>()[i * 30 + 7], 0);
      expect_right(p);
    }
  });
}

TEST(Scores, CosineKnowsNoLengths) {
  on_every_isa([] {
    const Tensor v = random_tensor({40, 3}, 3);
    for (const std::int64_t Tq : {2, 20}) {
      const Tensor q = random_tensor({Tq, 6}, 1), k = random_tensor({40, 6}, 2);
      const Attended expected = attend(q, k, v, {.score = cosine(), .scale = 3, .want_lse = true});
      for (const double length : {0x1p-20, 0x1p20}) {
        const Tensor q2 = random_tensor({Tq, 6}, 1, f32, length), k2 = random_tensor({40, 6}, 2, f32, 1 / length);
        const Attended got = attend(q2, k2, v, {.score = cosine(), .scale = 3, .want_lse = true});
        for (std::size_t n = 0; n < got.out.values<float>().size(); ++n) {
          ASSERT_NEAR(got.out.values<float>()[n], expected.out.values<float>()[n], 4e-6f);
        }
      }
    }
  });
}

// Whole numbers have exact distances: a pair at u = 1 stands on the edge, and belongs to the boxcar.
TEST(Scores, TheEdgeOfACompactKernel) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 6}) {
      const Tensor q({Tq, 2});
      const Tensor k = Tensor::of<float>({3, 4, 0, 5, 3, 3, 6, 0, 4, 4}, {5, 2});
      const Tensor v =
          Tensor::of<float>({1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1}, {5, 5});
      const auto weights_of = [&](const Score& score) { return attend(q, k, v, {.score = score, .weigh = raw()}).out; };
      const Tensor box = weights_of(boxcar(5)), triangle = weights_of(triangular(5)),
                   parabola = weights_of(epanechnikov(5));
      const float near = 1 - std::sqrt(18.0f) / 5;
      const float boxes[] = {1, 1, 1, 0, 0}, triangles[] = {0, 0, near, 0, 0},
                  parabolas[] = {0, 0, 0.75f * 0.28f, 0, 0};
      for (std::size_t j = 0; j < 5; ++j) {
        EXPECT_EQ(box.values<float>()[j], boxes[j]) << j;
        EXPECT_NEAR(triangle.values<float>()[j], triangles[j], 1e-6f) << j;
        EXPECT_NEAR(parabola.values<float>()[j], parabolas[j], 1e-6f) << j;
      }
    }
  });
}

TEST(Scores, AQueryAtAKeyHasDistanceZero) {
  on_every_isa([] {
    const Tensor x = random_tensor({1, 1, 20, 9}, 1);
    for (const Score::Kind kind : kernels) {
      expect_right(x, x, x,
                   {.score = {.kind = kind, .bandwidth = 1.5}, .want_lse = true, .want_scores = ScoreStage::scaled});
      const Attended got =
          attend(x, x, x, {.score = {.kind = kind, .bandwidth = 1.5}, .weigh = raw(), .want_weights = true});
      const float at_zero = kind == Score::Kind::epanechnikov ? 0.75f : 1.0f;
      // A gaussian that is computed from products keeps the roundings of the norms, about 9.
      for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(got.weights.values<float>()[i * 21], at_zero, 4e-6f);
    }
  });
}

TEST(Scores, ConstantAsksNoKey) {
  on_every_isa([] {
    for (const std::int64_t Tq : {2, 20}) {
      const Tensor q = random_tensor({Tq, 4}, 1), v = random_tensor({30, 3}, 2);
      Tensor k({30, 4});
      for (float& x : k.values<float>()) x = std::nanf("");
      const Tensor added = random_tensor({Tq, 30}, 3), zeros({30, 4});
      for (const Weigh& weigh : all_weighings()) {
        const AttendOptions options = {.score = constant(), .mask = bias(added), .weigh = weigh};
        EXPECT_TRUE(same_bits(attend(q, k, v, options).out, attend(q, zeros, v, options).out));
      }
    }
  });
}

// Your own scores.

struct MinusTheLargestDifference {
  template <class T>
  void operator()(const ScoreTile<T>& tile) const {
    for (std::int64_t j = 0; j < tile.keys; ++j) {
      for (std::int64_t i = 0; i < tile.queries; ++i) {
        T largest = 0;
        for (std::int64_t d = 0; d < tile.width; ++d) {
          largest = std::max(largest, std::abs(tile.query(i)[d] - tile.key(j)[d]));
        }
        tile.at(i, j) = -largest;
      }
    }
  }
};

TEST(YourScore, IsCalledWithTheTypeOfTheComputation) {
  on_every_isa([] {
    const MinusTheLargestDifference largest;
    const auto in_float = [&](const ScoreTile<float>& tile) { largest(tile); };
    const auto in_double = [&](const ScoreTile<double>& tile) { largest(tile); };
    for (const std::int64_t Tq : {1, 4, 5, 40}) {
      for (const Dtype dtype : {f32, f64, f16, bf16}) {
        const Tensor q = random_tensor({2, 4, Tq, 7}, 1, dtype), k = random_tensor({2, 2, 300, 7}, 2, dtype),
                     v = random_tensor({2, 2, 300, 5}, 3, dtype);
        expect_right(q, k, v, {.score = score_by(largest), .want_lse = true});
        const Score one = dtype == f64 ? score_by(in_double) : score_by(in_float);
        expect_right(q, k, v, {.score = one, .mask = causal(bottom_right()), .want_lse = true});
      }
    }
  });
}

TEST(YourScore, IsAskedForEveryPairOnceInsideTheProblem) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 4, 5, 60}) {
      const Tensor q = random_tensor({2, 4, Tq, 7}, 1), k = random_tensor({2, 2, 300, 7}, 2),
                   v = random_tensor({2, 2, 300, 5}, 3);
      std::vector<std::atomic<int>> asked(static_cast<std::size_t>(2 * 4 * Tq * 300));
      std::atomic<bool> right_rows = true;
      const auto count = [&](const ScoreTile<float>& tile) {
        for (std::int64_t j = 0; j < tile.keys; ++j) {
          for (std::int64_t i = 0; i < tile.queries; ++i) {
            const std::int64_t query = tile.first_query + i, key = tile.first_key + j;
            ++asked[static_cast<std::size_t>(((tile.batch * 4 + tile.head) * Tq + query) * 300 + key)];
            const float* q_row = q.values<float>().data() + ((tile.batch * 4 + tile.head) * Tq + query) * 7;
            const float* k_row = k.values<float>().data() + ((tile.batch * 2 + tile.head / 2) * 300 + key) * 7;
            if (tile.width != 7 || !std::equal(q_row, q_row + 7, tile.query(i)) ||
                !std::equal(k_row, k_row + 7, tile.key(j))) {
              right_rows = false;
            }
            tile.at(i, j) = 0;
          }
        }
      };
      attend(q, k, v, {.score = score_by(count), .threads = 2});
      for (const auto& times : asked) ASSERT_EQ(times, 1);
      EXPECT_TRUE(right_rows);
    }
  });
}

TEST(YourScore, ThatIsADotProductIsTheDotProduct) {
  on_every_isa([] {
    const auto product = []<class T>(const ScoreTile<T>& tile) {
      for (std::int64_t j = 0; j < tile.keys; ++j) {
        for (std::int64_t i = 0; i < tile.queries; ++i) {
          T sum = 0;
          for (std::int64_t d = 0; d < tile.width; ++d) sum += tile.query(i)[d] * tile.key(j)[d];
          tile.at(i, j) = sum;
        }
      }
    };
    for (const std::int64_t Tq : {3, 40}) {
      const Tensor q = random_tensor({Tq, 8}, 1, f32, 0.5), k = random_tensor({90, 8}, 2),
                   v = random_tensor({90, 5}, 3);
      const Tensor a = attend(q, k, v, {.score = score_by(product)}).out, b = attend(q, k, v, {.score = dot()}).out;
      for (std::size_t n = 0; n < a.values<float>().size(); ++n) {
        ASSERT_NEAR(a.values<float>()[n], b.values<float>()[n], 4e-6f);
      }
    }
  });
}

TEST(YourScore, MayThrow) {
  const Tensor x = random_tensor({2, 2, 60, 8}, 1);
  const auto fail = [](const ScoreTile<float>& tile) {
    if (tile.batch == 1) throw std::domain_error("no second sequence");
    for (std::int64_t j = 0; j < tile.keys; ++j) {
      for (std::int64_t i = 0; i < tile.queries; ++i) tile.at(i, j) = 0;
    }
  };
  for (const int threads : {1, 3}) {
    expect_error<std::domain_error>([&] { attend(x, x, x, {.score = score_by(fail), .threads = threads}); },
                                    {"second"});
    EXPECT_NO_THROW(attend(x, x, x, {.threads = threads}));
  }
}

// -inf from a function is a score like any other, not an exclusion: a row of nothing else is NaN, not empty.
TEST(YourScore, OfMinusInfinityIsAScore) {
  on_every_isa([] {
    const auto none = [](const ScoreTile<float>& tile) {
      for (std::int64_t j = 0; j < tile.keys; ++j) {
        for (std::int64_t i = 0; i < tile.queries; ++i) tile.at(i, j) = -std::numeric_limits<float>::infinity();
      }
    };
    for (const std::int64_t Tq : {3, 40}) {
      const Tensor x = random_tensor({Tq, 8}, 1);
      for (const Attended held = attend(x, x, x, {.score = score_by(none)});
           const float value : held.out.values<float>()) {
        ASSERT_TRUE(std::isnan(value));
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
