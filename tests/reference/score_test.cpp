// reference/score_test.cpp: the scores of the reference, against numbers worked out by hand.
#include "reference/score.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace qkv::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The scores of the query (3, 4) against the keys (3, 4), (0, 0), (0, 8), one head.
std::vector<double> scores(const Score& score) {
  const Tensor q = Tensor::of<double>({3, 4}, {1, 1, 1, 2}), k = Tensor::of<double>({3, 4, 0, 0, 0, 8}, {1, 1, 3, 2});
  return reference::Scores<double>(score, q, k).row(0, 0, 0);
}

TEST(ReferenceScore, ProductsAndAngles) {
  EXPECT_EQ(scores(dot()), (std::vector<double>{25, 0, 32}));
  EXPECT_EQ(scores(scaled_dot()), scores(dot())) << "its scale comes later";
  EXPECT_EQ(scores(cosine()), (std::vector<double>{1, 0, 0.8}));
}

TEST(ReferenceScore, ABilinearFormStandsBetweenQueryAndKey) {
  const Tensor M = Tensor::of<double>({0, 1, 10, 0}, {2, 2});  // q^T M k = q0 k1 + 10 q1 k0
  EXPECT_EQ(scores(bilinear(M)), (std::vector<double>{3 * 4 + 10 * 4 * 3, 0, 24}));
}

TEST(ReferenceScore, AdditiveIsAnMlpWithOneHiddenLayer) {
  const Tensor Wq = Tensor::of<double>({0.5, 0, 0, 0.25}, {2, 2}), Wk = Tensor::of<double>({0.1, 0, 0, 0.5}, {2, 2}),
               w = Tensor::of<double>({2, -1}, {2});
  const std::vector<double> s = scores(additive(Wq, Wk, w));
  EXPECT_DOUBLE_EQ(s[0], 2 * std::tanh(1.5 + 0.3) - std::tanh(1.0 + 2));
  EXPECT_DOUBLE_EQ(s[1], 2 * std::tanh(1.5) - std::tanh(1.0));
  EXPECT_DOUBLE_EQ(s[2], 2 * std::tanh(1.5) - std::tanh(1.0 + 4));
}

TEST(ReferenceScore, KernelsAreLogarithmsOfFunctionsOfTheDistance) {
  // Distances 0, 5 and 5; at a bandwidth of 10: 0, 1/2, 1/2.
  EXPECT_EQ(scores(gaussian(10)), (std::vector<double>{0, -0.125, -0.125}));
  EXPECT_EQ(scores(laplace(10)), (std::vector<double>{0, -0.5, -0.5}));
  EXPECT_EQ(scores(boxcar(10)), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(scores(boxcar(5)), (std::vector<double>{0, 0, 0})) << "u = 1 is inside";
  EXPECT_EQ(scores(boxcar(4)), (std::vector<double>{0, -infinity, -infinity}));
  EXPECT_EQ(scores(triangular(10)), (std::vector<double>{0, std::log(0.5), std::log(0.5)}));
  EXPECT_EQ(scores(triangular(5)), (std::vector<double>{0, -infinity, -infinity}));
  EXPECT_EQ(scores(epanechnikov(10))[0], std::log(0.75));
  EXPECT_EQ(scores(epanechnikov(10))[1], std::log(0.75 * 0.75));
  EXPECT_EQ(scores(epanechnikov(4))[2], -infinity);
  EXPECT_EQ(scores(constant()), (std::vector<double>{0, 0, 0}));
}

TEST(ReferenceScore, ABandwidthPerCoordinateStretchesTheAxes) {
  const Tensor sigma = Tensor::of<double>({3, 2}, {2});
  EXPECT_EQ(scores(gaussian(sigma))[0], 0);
  EXPECT_DOUBLE_EQ(scores(gaussian(sigma))[1], -(1.0 + 4) / 2);
  EXPECT_DOUBLE_EQ(scores(laplace(sigma))[2], -std::sqrt(1.0 + 4));
}

TEST(ReferenceScore, ADistanceThatIsNanGivesNan) {
  const Tensor q = Tensor::of<double>({std::nan("")}, {1, 1, 1, 1}), k = Tensor::of<double>({1}, {1, 1, 1, 1});
  for (const Score& score : {gaussian(), laplace(), boxcar(), triangular(), epanechnikov(), cosine(), dot()}) {
    EXPECT_TRUE(std::isnan(reference::Scores<double>(score, q, k).row(0, 0, 0)[0]));
  }
  EXPECT_EQ(reference::Scores<double>(constant(), q, k).row(0, 0, 0)[0], 0);
}

TEST(ReferenceScore, ParametersMayDifferFromHeadToHead) {
  const Tensor q = Tensor::of<double>({1, 1}, {1, 2, 1, 1}), k = Tensor::of<double>({3}, {1, 1, 1, 1});
  const Tensor M = Tensor::of<double>({5, 7}, {2, 1, 1}), sigma = Tensor::of<double>({1, 2}, {2, 1}),
               Wq = Tensor::of<double>({0, 1}, {2, 1, 1}), Wk = Tensor::of<double>({0.5}, {1, 1}),
               w = Tensor::of<double>({1, 2}, {2, 1});
  const auto of_head = [&](const Score& score, std::int64_t h) {
    return reference::Scores<double>(score, q, k).row(0, h, 0)[0];
  };
  EXPECT_EQ(of_head(bilinear(M), 0), 15);
  EXPECT_EQ(of_head(bilinear(M), 1), 21);
  EXPECT_EQ(of_head(laplace(sigma), 0), -2);
  EXPECT_EQ(of_head(laplace(sigma), 1), -1);
  EXPECT_EQ(of_head(additive(Wq, Wk, w), 0), std::tanh(1.5));
  EXPECT_EQ(of_head(additive(Wq, Wk, w), 1), 2 * std::tanh(2.5));
}

TEST(ReferenceScore, YourFunctionGetsTheQueryAndAllKeys) {
  const auto largest_difference = [](const ScoreTile<double>& tile) {
    for (std::int64_t i = 0; i < tile.queries; ++i) {
      for (std::int64_t j = 0; j < tile.keys; ++j) {
        double largest = 0;
        for (std::int64_t d = 0; d < tile.width; ++d) {
          largest = std::max(largest, std::abs(tile.query(i)[d] - tile.key(j)[d]));
        }
        tile.at(i, j) = -largest;
      }
    }
  };
  EXPECT_EQ(scores(score_by(largest_difference)), (std::vector<double>{0, -4, -4}));
}

}  // namespace
}  // namespace qkv::test
