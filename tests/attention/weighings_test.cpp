// attention/weighings_test.cpp: every way in which scores become weights, over sizes, ties, ends and empty rows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/error.h>

#include "support/close.h"
#include "support/isas.h"
#include "support/pages.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t few_and_many[] = {1, 4, 5, 40};

class EveryWeighing : public testing::TestWithParam<Weigh> {
 public:
  static std::string name(const testing::TestParamInfo<Weigh>& info) { return weigh_name(info.param); }
};
INSTANTIATE_TEST_SUITE_P(Weighings, EveryWeighing, testing::ValuesIn(all_weighings()), EveryWeighing::name);

TEST_P(EveryWeighing, IsRightForEveryNumberOfKeys) {
  on_every_isa([&] {
    for (const std::int64_t Tk : {0,  1,   2,   3,   4,   5,   7,   8,   9,   15,  16,  17,  33,  63,   64,
                                  65, 127, 128, 129, 193, 255, 256, 257, 300, 511, 512, 513, 700, 1025, 4097}) {
      for (const std::int64_t Tq : {2, 9}) {
        for (const Score::Kind score : {Score::Kind::scaled_dot, Score::Kind::gaussian, Score::Kind::triangular}) {
          expect_right({.B = 1,
                        .H = 2,
                        .Hk = 1,
                        .Tq = Tq,
                        .Tk = Tk,
                        .D = 8,
                        .Dv = 8,
                        .want_weights = true,
                        .score = score,
                        .weigh = GetParam()});
        }
      }
    }
  });
}

TEST_P(EveryWeighing, IsRightForEveryNumberOfQueriesAndWidthOfValues) {
  on_every_isa([&] {
    for (std::int64_t Tq = 0; Tq <= 40; ++Tq) {
      const std::int64_t Dv = (Tq * 7) % 41;
      expect_right(
          {.B = 1, .Hk = 1, .Tq = Tq, .Tk = 29, .D = 6, .Dv = Dv, .masks = {MaskKind::keep}, .weigh = GetParam()});
    }
    for (const std::int64_t Dv : {0, 1, 3, 7, 8, 9, 15, 16, 17, 24, 33, 64, 80, 128, 130}) {
      for (const std::int64_t Tq : {2, 9}) {
        expect_right({.B = 1, .Hk = 1, .Tq = Tq, .Tk = 70, .D = 6, .Dv = Dv, .weigh = GetParam()});
      }
    }
  });
}

TEST_P(EveryWeighing, IsRightInEveryDtype) {
  on_every_isa([&] {
    for (const Dtype dtype : {Dtype::float64, Dtype::float16, Dtype::bfloat16}) {
      for (const std::int64_t Tq : {2, 19}) {
        expect_right({.H = 4,
                      .Hk = 2,
                      .Tq = Tq,
                      .Tk = 70,
                      .D = 9,
                      .Dv = 10,
                      .q = dtype,
                      .k = dtype,
                      .v = dtype,
                      .masks = {MaskKind::bias, MaskKind::causal},
                      .want_weights = true,
                      .weigh = GetParam()});
      }
    }
  });
}

TEST_P(EveryWeighing, FollowsTheTemperature) {
  on_every_isa([&] {
    for (const double temperature : {0.1, 0.5, 2.0, 100.0}) {
      for (const Score::Kind score : {Score::Kind::dot, Score::Kind::laplace, Score::Kind::epanechnikov}) {
        for (const std::int64_t Tq : {2, 19}) {
          expect_right({.Tq = Tq,
                        .Tk = 40,
                        .masks = {MaskKind::bias},
                        .want_weights = true,
                        .score = score,
                        .weigh = GetParam(),
                        .temperature = temperature});
        }
      }
    }
  });
}

TEST_P(EveryWeighing, HasEmptyRows) {
  on_every_isa([&] {
    for (const OnEmpty on_empty : {OnEmpty::zero, OnEmpty::uniform, OnEmpty::nan}) {
      for (const std::int64_t Tq : few_and_many) {
        for (const Score::Kind score : {Score::Kind::scaled_dot, Score::Kind::boxcar, Score::Kind::additive}) {
          Case c{.Tq = Tq, .Tk = 70, .masks = {MaskKind::query_lengths, MaskKind::keep_keys}, .on_empty = on_empty};
          c.alignment = Alignment::Kind::top_left;
          c.score = score;
          c.weigh = GetParam();
          expect_right(with_all_statistics(c));
        }
      }
    }
  });
}

// Scores themselves, one query asked Tq times: what it gets from keys that are their own scores.
Attended ask(std::int64_t Tq, const std::vector<float>& scores, AttendOptions options) {
  Tensor q({Tq, 1});
  std::ranges::fill(q.values<float>(), 1.0f);
  const auto Tk = static_cast<std::int64_t>(scores.size());
  Tensor v({Tk, 1});
  for (std::size_t j = 0; j < scores.size(); ++j) v.values<float>()[j] = static_cast<float>(j + 1);
  options.score = dot();
  return attend(q, View(scores, {Tk, 1}), v, options);
}

TEST(Hard, TakesTheFirstAmongEquals) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const std::int64_t Tk : {1, 5, 64, 257, 700, 5000}) {
        for (const std::int64_t first : {std::int64_t{0}, Tk / 3, Tk / 2, Tk - 1}) {
          std::vector<float> scores(static_cast<std::size_t>(Tk), -3.0f);
          for (std::int64_t j = first; j < Tk; j += 7) scores[static_cast<std::size_t>(j)] = 2;
          const Attended got = ask(Tq, scores, {.weigh = hard(), .want_partial = true});
          for (const float x : got.out.values<float>()) ASSERT_EQ(x, static_cast<float>(first + 1)) << Tk;
          for (const float x : got.state.values<float>()) ASSERT_EQ(x, 2);
          for (const std::int64_t j : got.index.values<std::int64_t>()) ASSERT_EQ(j, first);
        }
      }
    }
  });
}

// Zeros of both signs are equal.
TEST(Hard, KnowsNoSignOfZero) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const Attended held = ask(Tq, {-1, -0.0f, 0.0f, -0.0f}, {.weigh = hard()});
           const float x : held.out.values<float>())
        ASSERT_EQ(x, 2);
      for (const Attended held = ask(Tq, {-1, 0.0f, -0.0f}, {.weigh = hard()});
           const float x : held.out.values<float>())
        ASSERT_EQ(x, 2);
    }
  });
}

TEST(Hard, GivesTheValueItselfBitForBit) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::bfloat16}) {
      // A query that is a key many times over finds it.
      const Tensor k = random_tensor({33, 16}, 1, dtype), v = random_tensor({33, 5}, 2, dtype);
      const Tensor got = attend(k, k, v, {.score = cosine(), .weigh = hard()}).out;
      EXPECT_TRUE(same_bits(got, v)) << name_of(dtype);
    }
  });
}

TEST(Hard, BelowTheMinimumNothingIsFound) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const std::vector<float> scores = {1, 2.5f, 2};
      const auto out = [&](double minimum, double temperature, OnEmpty on_empty) {
        return ask(Tq, scores, {.temperature = temperature, .weigh = hard(minimum), .on_empty = on_empty})
            .out.values<float>()[0];
      };
      EXPECT_EQ(out(2.5, 1, OnEmpty::zero), 2) << "the minimum itself is enough";
      EXPECT_EQ(out(2.500001, 1, OnEmpty::zero), 0);
      EXPECT_EQ(out(2.500001, 1, OnEmpty::uniform), 2);
      EXPECT_TRUE(std::isnan(out(2.500001, 1, OnEmpty::nan)));
      EXPECT_EQ(out(1.25, 2, OnEmpty::zero), 2) << "it is about the score over the temperature";
      EXPECT_EQ(out(1.26, 2, OnEmpty::zero), 0);
      EXPECT_EQ(out(-std::numeric_limits<double>::infinity(), 1, OnEmpty::zero), 2);
      EXPECT_THROW(out(3, 1, OnEmpty::error), OptionError);
      const Attended none = ask(Tq, scores, {.weigh = hard(3), .want_weights = true, .want_partial = true});
      for (const float w : none.weights.values<float>()) EXPECT_EQ(w, 0);
      for (const float s : none.state.values<float>()) EXPECT_EQ(s, -infinity);
      for (const std::int64_t j : none.index.values<std::int64_t>()) EXPECT_EQ(j, -1);
    }
  });
}

TEST(Hard, MinusInfiniteScoresThatAreSeenAreScores) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensor kept = Tensor::of<bool>({false, true, true}, {3});
      const std::vector<float> scores = {5, -infinity, -infinity};
      EXPECT_EQ(ask(Tq, scores, {.mask = keep(kept), .weigh = hard()}).out.values<float>()[0], 2);
    }
  });
}

TEST(TopK, IsRightForEveryK) {
  on_every_isa([] {
    for (const std::int64_t k : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 255, 256, 300, 301, 1000}) {
      for (const std::int64_t Tq : {2, 19}) {
        expect_right({.B = 1, .Tq = Tq, .Tk = 300, .D = 7, .want_weights = true, .weigh = top_k(k)});
        expect_right({.B = 1,
                      .Tq = Tq,
                      .Tk = 300,
                      .D = 7,
                      .masks = {MaskKind::causal, MaskKind::keep},
                      .score = Score::Kind::gaussian,
                      .weigh = top_k(k)});
      }
    }
  });
}

TEST(TopK, EarlierKeysComeFirstAmongEquals) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const std::int64_t Tk : {20, 300, 2000}) {
        for (const std::int64_t k : {1, 3, 5, 8}) {
          // Two are best, all others equal: of these the first k - 2 are taken.
          std::vector<float> scores(static_cast<std::size_t>(Tk), 1.0f);
          scores[static_cast<std::size_t>(Tk - 1)] = scores[static_cast<std::size_t>(Tk / 2)] = 3;
          const Attended got = ask(Tq, scores, {.weigh = top_k(k), .want_weights = true});
          for (std::int64_t n = 0; n < Tq * Tk; ++n) {
            const std::int64_t j = n % Tk;
            const bool best = j == Tk - 1 || j == Tk / 2;
            const bool taken = k == 1 ? j == Tk / 2 : best || j < k - 2;
            ASSERT_EQ(got.weights.values<float>()[static_cast<std::size_t>(n)] > 0, taken)
                << "key " << j << ", k " << k;
          }
        }
      }
    }
  });
}

TEST(TopK, OfAllKeysIsSoftmaxAndOfOneIsHard) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensor q = random_tensor({Tq, 8}, 1), k = random_tensor({150, 8}, 2), v = random_tensor({150, 5}, 3);
      const Tensor all = attend(q, k, v, {.weigh = top_k(150)}).out, soft = attend(q, k, v).out;
      for (std::size_t n = 0; n < all.values<float>().size(); ++n) {
        ASSERT_NEAR(all.values<float>()[n], soft.values<float>()[n], 4e-6f);
      }
      EXPECT_TRUE(same_bits(attend(q, k, v, {.weigh = top_k(1)}).out, attend(q, k, v, {.weigh = hard()}).out));
    }
  });
}

TEST(Uniform, ReadsNoKeys) {
  on_every_isa([&] {
    Pages pages(40);
    pages.forbid(0, 40);
    for (const std::int64_t Tq : few_and_many) {
      const Tensor q = random_tensor({Tq, 8}, 1), k = random_tensor({300, 8}, 2), v = random_tensor({300, 5}, 3);
      const View unread(reinterpret_cast<const float*>(pages.data()), {300, 8});
      for (const Mask& mask : {Mask(), causal(bottom_right()), window(20, 0, bottom_right())}) {
        const AttendOptions options = {.mask = mask, .weigh = uniform(), .want_weights = true, .want_mass = true};
        const Attended got = attend(q, unread, v, options), whole = attend(q, k, v, options);
        EXPECT_TRUE(same_bits(got.out, whole.out));
        EXPECT_TRUE(same_bits(got.weights, whole.weights));
        EXPECT_TRUE(same_bits(got.mass, whole.mass));
      }
    }
  });
}

TEST(Uniform, ScoresAndWhatIsAddedHaveNoSay) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensor q = random_tensor({1, 2, Tq, 8}, 1), k = random_tensor({1, 1, 90, 8}, 2),
                   v = random_tensor({1, 1, 90, 5}, 3);
      const Tensor expected = attend(q, k, v, {.weigh = uniform()}).out;
      const Tensor added = random_tensor({Tq, 90}, 4), slopes = random_tensor({2}, 5);
      const auto to_nan = [](const ScoreBlock<float>& block) {
        for (std::int64_t j = 0; j < block.keys; ++j) {
          for (std::int64_t i = 0; i < block.queries; ++i) block.at(i, j) = std::nanf("");
        }
      };
      for (const AttendOptions& options :
           {AttendOptions{.mask = bias(added)}, AttendOptions{.softcap = 2}, AttendOptions{.mask = edit_by(to_nan)},
            AttendOptions{.mask = alibi(slopes, top_left())}, AttendOptions{.temperature = 0.1},
            AttendOptions{.score = boxcar(0.01)}}) {
        AttendOptions uniformly = options;
        uniformly.weigh = uniform();
        EXPECT_TRUE(same_bits(attend(q, k, v, uniformly).out, expected));
      }
      Tensor excluding = added.clone();
      excluding.values<float>()[3] = -infinity;
      expect_right(q, k, v, {.mask = bias(excluding), .weigh = uniform(), .want_weights = true});
    }
  });
}

TEST(Normalize, ASumOfExactlyZeroIsAnEmptyRow) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const auto out = [&](const std::vector<float>& scores, OnEmpty on_empty) {
        return ask(Tq, scores, {.weigh = normalize(), .on_empty = on_empty, .want_lse = true, .want_weights = true});
      };
      const Attended zero = out({1, 2, -3}, OnEmpty::zero);
      for (const float x : zero.out.values<float>()) EXPECT_EQ(x, 0);
      for (const float x : zero.weights.values<float>()) EXPECT_EQ(x, 0);
      for (const float x : zero.lse.values<float>()) EXPECT_EQ(x, -infinity);
      for (const Attended held = out({0, 0, 0}, OnEmpty::zero); const float x : held.out.values<float>())
        EXPECT_EQ(x, 0);
      for (const Attended held = out({1, 2, -3}, OnEmpty::uniform); const float x : held.out.values<float>())
        EXPECT_FLOAT_EQ(x, 2);
      for (const Attended held = out({1, 2, -3}, OnEmpty::nan); const float x : held.out.values<float>())
        EXPECT_TRUE(std::isnan(x));
      EXPECT_THROW(out({1, 2, -3}, OnEmpty::error), OptionError);
    }
  });
}

TEST(Normalize, SignedScoresAreAllowed) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Attended got = ask(Tq, {4, -2, 6}, {.weigh = normalize(), .want_lse = true, .want_weights = true});
      EXPECT_FLOAT_EQ(got.out.values<float>()[0], (4 * 1 - 2 * 2 + 6 * 3) / 8.0f);
      EXPECT_FLOAT_EQ(got.weights.values<float>()[1], -0.25f);
      EXPECT_FLOAT_EQ(got.lse.values<float>()[0], std::log(8.0f));
      const Attended negative = ask(Tq, {-4, 2, -6}, {.weigh = normalize(), .want_lse = true});
      EXPECT_FLOAT_EQ(negative.out.values<float>()[0], (4 * 1 - 2 * 2 + 6 * 3) / 8.0f);
      EXPECT_TRUE(std::isnan(negative.lse.values<float>()[0])) << "the logarithm of a negative sum";
    }
  });
}

// Far from every key, kernel values vanish in float32 and their quotients do not.
TEST(Normalize, FarQueriesOfSmoothKernelsAreNotZeroOverZero) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      Tensor q({Tq, 1});
      for (float& x : q.values<float>()) x = 60;
      const Tensor k = Tensor::of<float>({0, 1, 2}, {3, 1}), v = Tensor::of<float>({10, 20, 30}, {3, 1});
      expect_right(q, k, v, {.score = gaussian(0.5), .weigh = normalize(), .want_lse = true, .want_weights = true});
      expect_right(q, k, v, {.score = laplace(0.01), .weigh = normalize(), .want_lse = true, .want_weights = true});
    }
  });
}

TEST(Raw, IsTheMatrixProductOfScoresAndValues) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      // Whole numbers: every sum is exact.
      const Tensor qi = random_integers({Tq, 4}, 1, -3, 3), ki = random_integers({50, 4}, 2, -3, 3),
                   vi = random_integers({50, 3}, 3, -3, 3);
      const auto as_floats = [](const Tensor& x) {
        Tensor y(x.shape());
        for (std::size_t n = 0; n < y.values<float>().size(); ++n)
          y.values<float>()[n] = static_cast<float>(x.values<std::int64_t>()[n]);
        return y;
      };
      const Tensor q = as_floats(qi), k = as_floats(ki), v = as_floats(vi);
      const Tensor out = attend(q, k, v, {.score = dot(), .weigh = raw()}).out;
      for (std::int64_t i = 0; i < Tq; ++i) {
        for (std::int64_t e = 0; e < 3; ++e) {
          std::int64_t sum = 0;
          for (std::int64_t j = 0; j < 50; ++j) {
            for (std::int64_t d = 0; d < 4; ++d) {
              sum += qi.values<std::int64_t>()[static_cast<std::size_t>(i * 4 + d)] *
                     ki.values<std::int64_t>()[static_cast<std::size_t>(j * 4 + d)] *
                     vi.values<std::int64_t>()[static_cast<std::size_t>(j * 3 + e)];
            }
          }
          ASSERT_EQ(out.values<float>()[static_cast<std::size_t>(i * 3 + e)], static_cast<float>(sum));
        }
      }
    }
  });
}

// A kernel of 0 excludes under softmax, normalize and top_k, and is just a weight of 0 under raw.
TEST(CompactKernels, AQueryFarFromAllKeysSeesNone) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      Tensor q({Tq, 1});
      for (float& x : q.values<float>()) x = 9;
      const Tensor k = Tensor::of<float>({0, 1, 2}, {3, 1}), v = Tensor::of<float>({10, 20, 30}, {3, 1});
      for (const Score& score : {boxcar(2), triangular(2), epanechnikov(2)}) {
        for (const Weigh& weigh : {softmax(), normalize(), top_k(2)}) {
          const auto out = [&](OnEmpty on_empty) {
            return attend(q, k, v, {.score = score, .weigh = weigh, .on_empty = on_empty, .want_lse = true});
          };
          for (const Attended held = out(OnEmpty::zero); const float x : held.out.values<float>()) EXPECT_EQ(x, 0);
          for (const Attended held = out(OnEmpty::zero); const float x : held.lse.values<float>())
            EXPECT_EQ(x, -infinity);
          for (const Attended held = out(OnEmpty::uniform); const float x : held.out.values<float>())
            EXPECT_FLOAT_EQ(x, 20);
          for (const Attended held = out(OnEmpty::nan); const float x : held.out.values<float>())
            EXPECT_TRUE(std::isnan(x));
          EXPECT_THROW(out(OnEmpty::error), OptionError);
        }
        const Attended got =
            attend(q, k, v, {.score = score, .weigh = raw(), .on_empty = OnEmpty::error, .want_weights = true});
        for (const float x : got.out.values<float>()) EXPECT_EQ(x, 0);
        for (const float x : got.weights.values<float>()) EXPECT_EQ(x, 0);
        const Attended first = attend(q, k, v, {.score = score, .weigh = hard()});
        for (const float x : first.out.values<float>()) EXPECT_EQ(x, 10) << "scores of -inf like any others";
      }
    }
  });
}

TEST(CompactKernels, SoftmaxAndNormalizeAreTheSame) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Problem p({.Tq = Tq, .Tk = 60, .score = Score::Kind::triangular});
      AttendOptions options = p.options();
      const Tensor soft = attend(p.q(), p.k(), p.v(), options).out;
      options.weigh = normalize();
      const Tensor normal = attend(p.q(), p.k(), p.v(), options).out;
      for (std::size_t n = 0; n < soft.values<float>().size(); ++n) {
        ASSERT_NEAR(soft.values<float>()[n], normal.values<float>()[n], 1e-5f);
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
