// attention/theory_test.cpp: the identities and regimes of the theory, as equations between calls of attend.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/attend.h>

#include "reference/elements.h"
#include "support/close.h"
#include "support/isas.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr std::int64_t few_and_many[] = {3, 30};

void expect_near(const View& a, const View& b, double tolerance) {
  ASSERT_EQ(a.shape(), b.shape());
  const std::vector<double> x = reference::elements<double>(a), y = reference::elements<double>(b);
  for (std::size_t n = 0; n < x.size(); ++n) ASSERT_NEAR(x[n], y[n], tolerance) << "element " << n;
}

double squared_length(const Tensor& x, std::size_t row) {
  const auto width = static_cast<std::size_t>(x.shape().back());
  double sum = 0;
  for (std::size_t d = 0; d < width; ++d) {
    const auto e = static_cast<double>(x.values<float>()[row * width + d]);
    sum += e * e;
  }
  return sum;
}

struct Records {
  Tensor q, k, v;
  explicit Records(std::int64_t Tq, std::int64_t Tk = 80, std::int64_t D = 6)
      : q(random_tensor({Tq, D}, 1)), k(random_tensor({Tk, D}, 2)), v(random_tensor({Tk, 4}, 3)) {}
};

// -|q - k|^2 / 2 = q . k - |k|^2 / 2 - |q|^2 / 2
TEST(Theory, AGaussianIsADotProductAndTwoNorms) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      Tensor of_keys({80}), of_both({Tq, 80});
      for (std::size_t j = 0; j < 80; ++j) {
        of_keys.values<float>()[j] = static_cast<float>(-squared_length(r.k, j) / 2);
        for (std::size_t i = 0; i < static_cast<std::size_t>(Tq); ++i) {
          of_both.values<float>()[i * 80 + j] =
              static_cast<float>(-(squared_length(r.k, j) + squared_length(r.q, i)) / 2);
        }
      }
      const Attended exact = attend(r.q, r.k, r.v, {.score = gaussian(), .want_lse = true, .want_weights = true});
      const Attended both = attend(r.q, r.k, r.v, {.score = dot(), .mask = bias(of_both), .want_lse = true});
      expect_near(both.out, exact.out, 5e-6);
      expect_near(both.lse, exact.lse, 5e-6);
      // The query's own norm cancels in the weights.
      const Attended keys = attend(r.q, r.k, r.v, {.score = dot(), .mask = bias(of_keys), .want_weights = true});
      expect_near(keys.weights, exact.weights, 5e-6);
      expect_near(keys.out, exact.out, 5e-6);
    }
  });
}

// Keys of one length, as layer normalisation makes them: their norms cancel too.
TEST(Theory, AmongKeysOfOneLengthAGaussianIsADotProduct) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      Records r(Tq);
      for (std::size_t j = 0; j < 80; ++j) {
        const double length = std::sqrt(squared_length(r.k, j));
        for (float& e : r.k.values<float>().subspan(j * 6, 6))
          e = static_cast<float>(2 * static_cast<double>(e) / length);
      }
      expect_near(attend(r.q, r.k, r.v, {.score = gaussian()}).out, attend(r.q, r.k, r.v, {.score = dot()}).out, 5e-6);
    }
  });
}

TEST(Theory, ABandwidthIsATemperatureOfTheGaussian) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      expect_near(attend(r.q, r.k, r.v, {.score = gaussian(2)}).out,
                  attend(r.q, r.k, r.v, {.score = gaussian(), .temperature = 4}).out, 5e-6);
      expect_near(attend(r.q, r.k, r.v, {.score = laplace(2)}).out,
                  attend(r.q, r.k, r.v, {.score = laplace(), .temperature = 2}).out, 5e-6);
    }
  });
}

// A bandwidth per coordinate is a stretch of the coordinates.
TEST(Theory, BandwidthsStretchTheCoordinates) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      const Tensor sigma = Tensor::of<float>({1, 2, 0.5f, 4, 1, 0.25f}, {6});
      const auto stretched = [&](const Tensor& x) {
        Tensor y = x.clone();
        for (std::size_t n = 0; n < y.values<float>().size(); ++n) y.values<float>()[n] /= sigma.values<float>()[n % 6];
        return y;
      };
      for (const Score::Kind kind : {Score::Kind::gaussian, Score::Kind::laplace, Score::Kind::triangular}) {
        const Score wide{.kind = kind, .bandwidths = sigma}, plain{.kind = kind};
        expect_near(attend(r.q, r.k, r.v, {.score = wide, .weigh = raw()}).out,
                    attend(stretched(r.q), stretched(r.k), r.v, {.score = plain, .weigh = raw()}).out, 2e-5);
      }
    }
  });
}

// The additive score is a network with one hidden layer, without biases, on query and key written one after the other.
TEST(Theory, AdditiveIsAnMlpOnTheConcatenatedPair) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      const Tensor W = random_tensor({9, 12}, 4, Dtype::float32, 0.5), w = random_tensor({9}, 5);
      const auto mlp = [&](const ScoreTile<float>& tile) {
        for (std::int64_t i = 0; i < tile.queries; ++i) {
          for (std::int64_t j = 0; j < tile.keys; ++j) {
            std::vector<double> pair(tile.query(i), tile.query(i) + 6);
            pair.insert(pair.end(), tile.key(j), tile.key(j) + 6);
            double score = 0;
            for (std::size_t e = 0; e < 9; ++e) {
              double hidden = 0;
              for (std::size_t d = 0; d < 12; ++d)
                hidden += static_cast<double>(W.values<float>()[e * 12 + d]) * pair[d];
              score += static_cast<double>(w.values<float>()[e]) * std::tanh(hidden);
            }
            tile.at(i, j) = static_cast<float>(score);
          }
        }
      };
      // Its first columns are Wq, the others Wk.
      const Score score = additive(W.view().slice(1, 0, 6), W.view().slice(1, 6, 6), w);
      const Attended a = attend(r.q, r.k, r.v, {.score = score, .want_lse = true});
      const Attended b = attend(r.q, r.k, r.v, {.score = score_by(mlp), .want_lse = true});
      expect_near(a.out, b.out, 5e-6);
      expect_near(a.lse, b.lse, 5e-6);
    }
  });
}

TEST(Theory, ABilinearFormIsADotProductOfProjections) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      Tensor identity({6, 6});
      for (std::size_t d = 0; d < 6; ++d) identity.values<float>()[d * 7] = 1;
      expect_near(attend(r.q, r.k, r.v, {.score = bilinear(identity)}).out, attend(r.q, r.k, r.v, {.score = dot()}).out,
                  5e-6);
      // M = Wq^T Wk: q^T M k = (Wq q) . (Wk k), with queries and keys of different widths.
      const Tensor Wq = random_tensor({4, 6}, 4, Dtype::float32, 0.4),
                   Wk = random_tensor({4, 3}, 5, Dtype::float32, 0.6), keys = random_tensor({80, 3}, 6);
      const auto product = [](const Tensor& a, const Tensor& b, bool transpose_a) {
        const auto inner = static_cast<std::size_t>(transpose_a ? a.shape()[0] : a.shape()[1]);
        const auto rows = static_cast<std::size_t>(transpose_a ? a.shape()[1] : a.shape()[0]),
                   columns = static_cast<std::size_t>(transpose_a ? b.shape()[1] : b.shape()[0]);
        Tensor c({static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)});
        for (std::size_t i = 0; i < rows; ++i) {
          for (std::size_t j = 0; j < columns; ++j) {
            double sum = 0;
            for (std::size_t n = 0; n < inner; ++n) {
              const auto x = a.values<float>()[transpose_a ? n * rows + i : i * inner + n],
                         y = b.values<float>()[transpose_a ? n * columns + j : j * inner + n];
              sum += static_cast<double>(x) * static_cast<double>(y);
            }
            c.values<float>()[i * columns + j] = static_cast<float>(sum);
          }
        }
        return c;
      };
      const Tensor M = product(Wq, Wk, true);
      expect_near(attend(r.q, keys, r.v, {.score = bilinear(M)}).out,
                  attend(product(r.q, Wq, false), product(keys, Wk, false), r.v, {.score = dot()}).out, 1e-5);
    }
  });
}

TEST(Theory, CosineIsTheDotProductOfUnitVectors) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      const auto units = [](const Tensor& x) {
        Tensor y = x.clone();
        for (std::size_t row = 0; row < static_cast<std::size_t>(x.shape()[0]); ++row) {
          const double length = std::sqrt(squared_length(x, row));
          for (float& e : y.values<float>().subspan(row * 6, 6))
            e = static_cast<float>(static_cast<double>(e) / length);
        }
        return y;
      };
      expect_near(attend(r.q, r.k, r.v, {.score = cosine()}).out,
                  attend(units(r.q), units(r.k), r.v, {.score = dot()}).out, 5e-6);
    }
  });
}

// Over sqrt(d), products of independent normal vectors have variance 1 whatever their width.
TEST(Theory, TheScaleKeepsTheVarianceOfScores) {
  for (const std::int64_t D : {4, 64, 256}) {
    const Tensor q = random_tensor({60, D}, 1), k = random_tensor({200, D}, 2), v = random_tensor({200, 1}, 3);
    const Tensor scores = attend(q, k, v, {.want_scores = ScoreStage::scaled}).scores;
    double squares = 0;
    for (const float s : scores.values<float>()) squares += static_cast<double>(s) * static_cast<double>(s);
    EXPECT_NEAR(squares / (60 * 200), 1, 0.15) << "D " << D;
  }
}

// The regimes: what the weights are, and where the answer lies.

TEST(Regimes, NonNegativeWeightsSpanAConvexCone) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      // Values in the first quadrant: so is every answer.
      Records r(Tq);
      for (float& e : r.v.values<float>()) e = std::abs(e);
      for (const Score& score : {gaussian(), laplace(), boxcar(3), triangular(3), epanechnikov(3), constant()}) {
        const Attended got = attend(r.q, r.k, r.v, {.score = score, .weigh = raw(), .want_weights = true});
        for (const float w : got.weights.values<float>()) ASSERT_GE(w, 0);
        for (const float e : got.out.values<float>()) ASSERT_GE(e, 0);
      }
    }
  });
}

TEST(Regimes, ConvexCombinationsStayBetweenTheValues) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      for (const auto& [score, weigh] : {std::pair{scaled_dot(), softmax()},
                                         {gaussian(2), normalize()},
                                         {triangular(4), normalize()},
                                         {cosine(), top_k(4)}}) {
        const Attended got = attend(r.q, r.k, r.v, {.score = score, .weigh = weigh, .want_weights = true});
        for (std::size_t i = 0; i < static_cast<std::size_t>(Tq); ++i) {
          double sum = 0;
          for (const float w : got.weights.values<float>().subspan(i * 80, 80)) {
            ASSERT_GE(w, 0);
            sum += static_cast<double>(w);
          }
          ASSERT_NEAR(sum, 1, 2e-6);
          for (std::size_t e = 0; e < 4; ++e) {
            float lowest = HUGE_VALF, highest = -HUGE_VALF;
            for (std::size_t j = 0; j < 80; ++j) {
              lowest = std::min(lowest, r.v.values<float>()[j * 4 + e]);
              highest = std::max(highest, r.v.values<float>()[j * 4 + e]);
            }
            ASSERT_GE(got.out.values<float>()[i * 4 + e], lowest - 2e-6f);
            ASSERT_LE(got.out.values<float>()[i * 4 + e], highest + 2e-6f);
          }
        }
      }
    }
  });
}

TEST(Regimes, ExactlyOneWeightIsOneInADatabaseQuery) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      for (const Score& score : {dot(), cosine(), gaussian(), laplace()}) {
        const Attended got = attend(r.q, r.k, r.v, {.score = score, .weigh = hard(), .want_weights = true});
        for (std::size_t i = 0; i < static_cast<std::size_t>(Tq); ++i) {
          const auto row = got.weights.values<float>().subspan(i * 80, 80);
          EXPECT_EQ(std::count(row.begin(), row.end(), 1.0f), 1);
          EXPECT_EQ(std::count(row.begin(), row.end(), 0.0f), 79);
        }
      }
    }
  });
}

// Who asks with a key gets its value; who asks for what is not there gets nothing.
TEST(Regimes, AnExactQueryFindsItsRecordOrNothing) {
  on_every_isa([] {
    const Tensor keys = random_integers({50, 3}, 1, -9, 9);
    Tensor k({50, 3}), q({51, 3});
    for (std::size_t n = 0; n < 150; ++n)
      q.values<float>()[n] = k.values<float>()[n] = static_cast<float>(keys.values<std::int64_t>()[n]);
    for (std::size_t j = 0; j < 50; ++j) q.values<float>()[j * 3] = k.values<float>()[j * 3] = static_cast<float>(j);
    q.values<float>()[50 * 3] = 0.5f;
    const Tensor v = random_tensor({50, 4}, 2);
    // The nearest other key is half a step away: a score of -1/8 at most.
    for (const Score& score : {boxcar(0.25), laplace(1), gaussian(1)}) {
      const Attended got = attend(q, k, v, {.score = score, .weigh = hard(-0.01), .want_weights = true});
      EXPECT_TRUE(same_bits(Tensor::copy_of(got.out.view().slice(0, 0, 50)), v));
      for (const float e : got.out.values<float>().subspan(200)) EXPECT_EQ(e, 0);
    }
  });
}

TEST(Regimes, EqualWeightsAreAveragePooling) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      std::vector<double> mean(4, 0);
      for (std::size_t n = 0; n < 320; ++n) mean[n % 4] += static_cast<double>(r.v.values<float>()[n]) / 80;
      const Tensor pooled = attend(r.q, r.k, r.v, {.weigh = uniform()}).out;
      const Tensor flat = attend(r.q, r.k, r.v, {.score = constant()}).out;
      const Tensor divided = attend(r.q, r.k, r.v, {.score = constant(), .weigh = normalize()}).out;
      for (std::size_t n = 0; n < static_cast<std::size_t>(4 * Tq); ++n) {
        for (const Tensor* out : {&pooled, &flat, &divided}) ASSERT_NEAR(out->values<float>()[n], mean[n % 4], 1e-6);
      }
    }
  });
}

TEST(Regimes, SoftmaxLiesBetweenHardAndUniform) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      expect_near(attend(r.q, r.k, r.v, {.temperature = 1e-4}).out, attend(r.q, r.k, r.v, {.weigh = hard()}).out, 1e-6);
      expect_near(attend(r.q, r.k, r.v, {.temperature = 1e7}).out, attend(r.q, r.k, r.v, {.weigh = uniform()}).out,
                  2e-6);
      // The same between the nearest neighbour and the mean.
      expect_near(attend(r.q, r.k, r.v, {.score = gaussian(0.01)}).out,
                  attend(r.q, r.k, r.v, {.score = laplace(), .weigh = hard()}).out, 1e-6);
      expect_near(attend(r.q, r.k, r.v, {.score = gaussian(1e4)}).out, attend(r.q, r.k, r.v, {.weigh = uniform()}).out,
                  2e-6);
    }
  });
}

TEST(Regimes, SoftmaxNormalizesTheExponential) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r(Tq);
      const auto exponential = []<class T>(const ScoreTile<T>& tile) {
        for (std::int64_t j = 0; j < tile.keys; ++j) {
          for (std::int64_t i = 0; i < tile.queries; ++i) {
            T sum = 0;
            for (std::int64_t d = 0; d < tile.width; ++d) sum += tile.query(i)[d] * tile.key(j)[d];
            tile.at(i, j) = std::exp(sum);
          }
        }
      };
      expect_near(attend(r.q, r.k, r.v, {.score = score_by(exponential), .weigh = normalize()}).out,
                  attend(r.q, r.k, r.v, {.score = dot()}).out, 5e-6);
    }
  });
}

TEST(Regimes, ABoxcarAveragesTheNeighbours) {
  on_every_isa([] {
    const Tensor q = Tensor::of<float>({2.2f, 2.2f, 2.2f, 2.2f, 2.2f, 7}, {6, 1}),
                 k = Tensor::of<float>({0, 1, 2, 3, 4, 5}, {6, 1}), v = Tensor::of<float>({1, 2, 4, 8, 16, 32}, {6, 1});
    const Tensor out = attend(q, k, v, {.score = boxcar(1.5), .weigh = normalize()}).out;
    EXPECT_FLOAT_EQ(out.values<float>()[0], (2 + 4 + 8) / 3.0f);
    EXPECT_EQ(out.values<float>()[5], 0) << "no neighbour";
  });
}

// Keys and values are only names: exchanged, the same table is asked the other way.
TEST(Regimes, ATableMayBeAskedBothWays) {
  const Tensor words = Tensor::of<float>({1, 2, 3}, {3, 1}), numbers = Tensor::of<float>({10, 20, 30}, {3, 1}),
               two = Tensor::of<float>({2}, {1, 1}), twenty = Tensor::of<float>({20}, {1, 1});
  EXPECT_EQ(attend(two, words, numbers, {.score = gaussian(), .weigh = hard()}).out.values<float>()[0], 20);
  EXPECT_EQ(attend(twenty, numbers, words, {.score = gaussian(), .weigh = hard()}).out.values<float>()[0], 2);
}

}  // namespace
}  // namespace qkv::test
