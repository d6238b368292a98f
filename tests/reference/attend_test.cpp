// reference/attend_test.cpp: the reference itself, against numbers worked out by hand.
#include "reference/attend.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "reference/gemm.h"
#include "reference/masked_softmax.h"

namespace qkv::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// One query 1 and keys ln 1, ln 2, ln 5, so that the weights are 1/8, 2/8, 5/8; values 8, 16, 32.
struct ThreeKeys {
  Tensor q = Tensor::of<double>({1}, {1, 1});
  Tensor k = Tensor::of<double>({0, std::log(2.0), std::log(5.0)}, {3, 1});
  Tensor v = Tensor::of<double>({8, 16, 32}, {3, 1});
  reference::Row<double> ask(const AttendOptions& options = {}) const {
    return reference::Attention<double>(q, k, v, options).row(0, 0, 0);
  }
};

TEST(Reference, PoolsTheValuesByTheirWeights) {
  const auto row = ThreeKeys().ask();
  EXPECT_DOUBLE_EQ(row.weights[0], 0.125);
  EXPECT_DOUBLE_EQ(row.weights[1], 0.25);
  EXPECT_DOUBLE_EQ(row.weights[2], 0.625);
  EXPECT_DOUBLE_EQ(row.out[0], 1 + 4 + 20);
  EXPECT_DOUBLE_EQ(row.lse, std::log(8.0));
}

TEST(Reference, AnExcludedKeyGetsNoWeight) {
  const Tensor lens = Tensor::of<std::int64_t>({2}, {1});
  const auto row = ThreeKeys().ask({.mask = lengths(lens)});
  EXPECT_DOUBLE_EQ(row.weights[0], 1.0 / 3);
  EXPECT_EQ(row.weights[2], 0);
  EXPECT_EQ(row.biased[2], -infinity);
  EXPECT_DOUBLE_EQ(row.out[0], 8 / 3.0 + 32 / 3.0);
}

TEST(Reference, ScaleComesBeforeSoftcapAndSoftcapBeforeBias) {
  const Tensor added = Tensor::of<double>({0, 10, 0}, {1, 3});
  const auto row = ThreeKeys().ask({.scale = 2, .softcap = 0.5, .mask = bias(added)});
  EXPECT_DOUBLE_EQ(row.scaled[1], 2 * std::log(2.0));
  EXPECT_DOUBLE_EQ(row.capped[1], 0.5 * std::tanh(4 * std::log(2.0)));
  EXPECT_DOUBLE_EQ(row.biased[1], row.capped[1] + 10);
}

TEST(Reference, AlibiAddsMinusSlopeTimesDistance) {
  const Tensor slopes = Tensor::of<double>({0.5}, {1});
  const auto row = ThreeKeys().ask({.mask = alibi(slopes, bottom_right())});
  EXPECT_DOUBLE_EQ(row.biased[0] - row.capped[0], -1);
  EXPECT_DOUBLE_EQ(row.biased[2] - row.capped[2], 0);
}

TEST(Reference, BottomRightWithLengthsStandsAtTheLastValidKey) {
  const Tensor lens = Tensor::of<std::int64_t>({2}, {1});
  const Tensor slopes = Tensor::of<double>({1}, {1});
  const auto row = ThreeKeys().ask({.mask = lengths(lens) & alibi(slopes, bottom_right())});
  EXPECT_DOUBLE_EQ(row.biased[1] - row.capped[1], 0);
  EXPECT_DOUBLE_EQ(row.biased[0] - row.capped[0], -1);
}

TEST(Reference, AWindowIsAboutThePosition) {
  const auto row = ThreeKeys().ask({.mask = window(1, 0, offset(2))});
  EXPECT_EQ(row.weights[0], 0);
  EXPECT_DOUBLE_EQ(row.weights[1], 2.0 / 7);
  EXPECT_DOUBLE_EQ(row.weights[2], 5.0 / 7);
}

TEST(Reference, AQueryWithoutKeysGetsWhatOnEmptySays) {
  const AttendOptions before_all_keys = {.mask = causal(offset(-1))};
  AttendOptions options = before_all_keys;
  EXPECT_EQ(ThreeKeys().ask(options).out[0], 0);
  EXPECT_EQ(ThreeKeys().ask(options).lse, -infinity);
  options.on_empty = OnEmpty::uniform;
  EXPECT_DOUBLE_EQ(ThreeKeys().ask(options).out[0], 56 / 3.0);
  EXPECT_DOUBLE_EQ(ThreeKeys().ask(options).weights[1], 1 / 3.0);
  EXPECT_EQ(ThreeKeys().ask(options).lse, -infinity);
  options.on_empty = OnEmpty::nan;
  EXPECT_TRUE(std::isnan(ThreeKeys().ask(options).out[0]));
}

TEST(Reference, ConsecutiveQueryHeadsShareAKeyHead) {
  const Tensor q = Tensor::of<double>({1, 1, 1, 1}, {1, 4, 1, 1});
  const Tensor k = Tensor::of<double>({0, 0}, {1, 2, 1, 1});
  const Tensor v = Tensor::of<double>({5, 7}, {1, 2, 1, 1});
  const auto all = reference::attend<double>(q, k, v, {});
  EXPECT_EQ(all.out, (std::vector<double>{5, 5, 7, 7}));
}

TEST(Reference, AWidthOfZeroMakesEveryScoreZero) {
  const Tensor q({1, 0}, Dtype::float64), k({2, 0}, Dtype::float64);
  const Tensor v = Tensor::of<double>({2, 4}, {2, 1});
  EXPECT_EQ(reference::attend<double>(q, k, v, {}).out[0], 3);
}

TEST(Reference, MultipliesMatrices) {
  const Tensor a = Tensor::of<float>({1, 2, 3, 4}, {2, 2}), b = Tensor::of<float>({5, 6, 7, 8}, {2, 2});
  EXPECT_EQ(reference::gemm<double>(a, b), (std::vector<double>{19, 22, 43, 50}));
  EXPECT_EQ(reference::gemm<double>(a, b.view().swapped(0, 1)), (std::vector<double>{17, 23, 39, 53}));
}

TEST(Reference, TakesTheSoftmaxOfTheFirstEntries) {
  const Tensor scores = Tensor::of<double>({0, std::log(3.0), 100}, {1, 3});
  const Tensor lens = Tensor::of<std::int32_t>({2}, {1});
  const auto weights = reference::masked_softmax<double>(scores, lens, OnEmpty::zero);
  EXPECT_DOUBLE_EQ(weights[0], 0.25);
  EXPECT_DOUBLE_EQ(weights[1], 0.75);
  EXPECT_EQ(weights[2], 0);
}

}  // namespace
}  // namespace qkv::test
