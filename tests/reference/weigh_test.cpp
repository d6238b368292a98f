// reference/weigh_test.cpp: the weighings and statistics of the reference, against numbers worked out by hand.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "reference/attend.h"

namespace qkv::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// One query 1 and keys 2, 3, 3, -4, which are their dot products; values 1, 10, 100, 1000.
struct FourKeys {
  Tensor q = Tensor::of<double>({1}, {1, 1}), k = Tensor::of<double>({2, 3, 3, -4}, {4, 1}),
         v = Tensor::of<double>({1, 10, 100, 1000}, {4, 1});
  reference::Row<double> ask(AttendOptions options) const {
    options.want_entropy = true;
    options.want_top = 3;
    return reference::Attention<double>(q, k, v, options).row(0, 0, 0);
  }
};

TEST(ReferenceWeigh, NormalizeDividesTheScoresByTheirSum) {
  const auto row = FourKeys().ask({.score = dot(), .weigh = normalize()});
  EXPECT_EQ(row.weights, (std::vector<double>{0.5, 0.75, 0.75, -1}));
  EXPECT_EQ(row.out[0], 0.5 + 7.5 + 75 - 1000);
  EXPECT_DOUBLE_EQ(row.lse, std::log(4.0));
  EXPECT_EQ(row.state, 4);
  EXPECT_TRUE(std::isnan(row.entropy));
}

TEST(ReferenceWeigh, ASumOfZeroIsAnEmptyRow) {
  const Tensor added = Tensor::of<double>({0, 0, 0, -4}, {4});
  const auto row = FourKeys().ask({.score = dot(), .mask = bias(added), .weigh = normalize()});
  EXPECT_TRUE(row.empty);
  EXPECT_EQ(row.out[0], 0);
  EXPECT_EQ(row.lse, -infinity);
  EXPECT_EQ(row.top_indices, (std::vector<std::int64_t>{-1, -1, -1}));
}

TEST(ReferenceWeigh, RawWeighsByTheScoreOrTheKernel) {
  EXPECT_EQ(FourKeys().ask({.score = dot(), .temperature = 2, .weigh = raw()}).weights,
            (std::vector<double>{1, 1.5, 1.5, -2}));
  // Distances 1, 2, 2, 5; at a bandwidth of 4: kappa 3/4, 1/2, 1/2, 0.
  const auto row = FourKeys().ask({.score = triangular(4), .weigh = raw()});
  EXPECT_EQ(row.weights, (std::vector<double>{0.75, 0.5, 0.5, 0}));
  EXPECT_FALSE(row.empty);
  const Tensor added = Tensor::of<double>({std::log(2.0)}, {1});
  EXPECT_DOUBLE_EQ(FourKeys().ask({.score = triangular(4), .mask = bias(added), .weigh = raw()}).weights[0], 1.5);
  EXPECT_DOUBLE_EQ(FourKeys().ask({.score = triangular(4), .temperature = 2, .weigh = raw()}).weights[1],
                   std::sqrt(0.5));
}

TEST(ReferenceWeigh, KernelsUnderNormalizeGiveKernelRegression) {
  const auto row = FourKeys().ask({.score = triangular(4), .weigh = normalize()});
  EXPECT_NEAR(row.out[0], (0.75 * 1 + 0.5 * 10 + 0.5 * 100) / 1.75, 1e-12);
  EXPECT_NEAR(row.lse, std::log(1.75), 1e-15);
}

TEST(ReferenceWeigh, OutsideACompactKernelNothingIsSeen) {
  for (const Weigh& weigh : {softmax(), normalize(), top_k(2)}) {
    EXPECT_TRUE(FourKeys().ask({.score = boxcar(0.5), .weigh = weigh}).empty);
  }
  EXPECT_FALSE(FourKeys().ask({.score = boxcar(0.5), .weigh = raw()}).empty);
  const auto nearest = FourKeys().ask({.score = boxcar(0.5), .weigh = hard()});
  EXPECT_EQ(nearest.index, 0) << "all are -inf: the first that is seen";
  EXPECT_EQ(nearest.state, -infinity);
}

TEST(ReferenceWeigh, HardTakesTheFirstOfTheLargest) {
  const auto row = FourKeys().ask({.score = dot(), .temperature = 3, .weigh = hard()});
  EXPECT_EQ(row.weights, (std::vector<double>{0, 1, 0, 0}));
  EXPECT_EQ(row.out[0], 10);
  EXPECT_EQ(row.index, 1);
  EXPECT_EQ(row.state, 1);
  EXPECT_FALSE(FourKeys().ask({.score = dot(), .weigh = hard(3)}).empty);
  EXPECT_TRUE(FourKeys().ask({.score = dot(), .weigh = hard(3.5)}).empty);
  EXPECT_TRUE(FourKeys().ask({.score = dot(), .temperature = 3, .weigh = hard(1.5)}).empty);
}

TEST(ReferenceWeigh, UniformAsksNobody) {
  const Tensor lens = Tensor::of<std::int64_t>({2}, {1});
  FourKeys four;
  four.k.values<double>()[0] = std::nan("");
  const auto row = four.ask({.mask = lengths(lens), .weigh = uniform()});
  EXPECT_EQ(row.weights, (std::vector<double>{0.5, 0.5, 0, 0}));
  EXPECT_EQ(row.out[0], 5.5);
  EXPECT_EQ(row.state, 2);
}

TEST(ReferenceWeigh, TopKIsSoftmaxOverTheBest) {
  const auto two = FourKeys().ask({.score = dot(), .weigh = top_k(2)});
  EXPECT_EQ(two.weights, (std::vector<double>{0, 0.5, 0.5, 0}));
  EXPECT_DOUBLE_EQ(two.lse, 3 + std::log(2.0));
  EXPECT_DOUBLE_EQ(two.entropy, std::log(2.0));
  EXPECT_DOUBLE_EQ(two.effective, 2);
  EXPECT_EQ(two.top_indices, (std::vector<std::int64_t>{1, 2, 0}));
  EXPECT_EQ(two.top_weights, (std::vector<double>{0.5, 0.5, 0}));
  EXPECT_EQ(FourKeys().ask({.score = dot(), .weigh = top_k(1)}).weights, (std::vector<double>{0, 1, 0, 0}));
}

TEST(ReferenceWeigh, ANanScoreMakesTheRowNan) {
  FourKeys four;
  four.k.values<double>()[3] = std::nan("");
  for (const Weigh& weigh : {softmax(), normalize(), raw(), hard(), top_k(2)}) {
    const auto row = four.ask({.weigh = weigh});
    EXPECT_TRUE(std::isnan(row.out[0]));
    EXPECT_TRUE(std::isnan(row.top_weights[0]));
    EXPECT_EQ(row.top_indices[0], -1);
  }
  EXPECT_EQ(four.ask({.weigh = uniform()}).out[0], 1111 / 4.0);
}

TEST(ReferenceWeigh, ColumnsOfTheWeightsSumToTheMass) {
  const Tensor q = Tensor::of<double>({0, 0}, {2, 1}), k = Tensor::of<double>({1, 1}, {2, 1}),
               rows = Tensor::of<std::int32_t>({1, 0, 1}, {3});
  const auto all = reference::attend<double>(q, k, k, {.mask = causal(), .want_rows = rows, .want_mass = true});
  EXPECT_EQ(all.mass, (std::vector<double>{1.5, 0.5}));
  EXPECT_EQ(all.row_weights, (std::vector<double>{0.5, 0.5, 1, 0, 0.5, 0.5}));
}

TEST(ReferenceWeigh, DropoutFollowsTheGenerator) {
  const Tensor q({1, 1}, Dtype::float64), k({50, 1}, Dtype::float64);
  Tensor v({50, 50}, Dtype::float64);
  for (std::size_t j = 0; j < 50; ++j) v.values<double>()[j * 51] = 1;
  const Tensor ids = Tensor::of<std::int64_t>({42}, {1});
  const AttendOptions options = {.dropout = 0.25, .training = true, .seed = 7, .sequence_ids = ids};
  const auto row = reference::Attention<double>(q, k, v, options).row(0, 0, 0);
  for (std::int64_t j = 0; j < 50; ++j) {
    const bool dropped = random_bits(random_key(7, 42, 0, 0), j) < 1u << 30;
    EXPECT_DOUBLE_EQ(row.out[static_cast<std::size_t>(j)], dropped ? 0 : 1 / 50.0 / 0.75);
    EXPECT_DOUBLE_EQ(row.weights[static_cast<std::size_t>(j)], 1 / 50.0);
  }
}

}  // namespace
}  // namespace qkv::test
