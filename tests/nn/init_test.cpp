// nn/init_test.cpp: the distributions of first parameters.
#include <cmath>

#include <gtest/gtest.h>

#include <qkv/nn.h>

#include "reference/elements.h"
#include "support/close.h"
#include "support/errors.h"

namespace qkv::test {
namespace {

struct Moments {
  double mean = 0, deviation = 0, least = 0, greatest = 0;
};

Moments moments_of(const Variable& variable) {
  const std::vector<double> all = reference::elements<double>(variable.value());
  const auto count = static_cast<double>(all.size());
  Moments m{0, 0, all[0], all[0]};
  for (const double x : all) {
    m.mean += x / count;
    m.least = std::min(m.least, x);
    m.greatest = std::max(m.greatest, x);
  }
  for (const double x : all) m.deviation += (x - m.mean) * (x - m.mean) / count;
  m.deviation = std::sqrt(m.deviation);
  return m;
}

// Of about 40000 numbers: 5 standard errors are 2.5 % of the deviation.
void expect_uniform(const Variable& variable, double bound) {
  const Moments m = moments_of(variable);
  EXPECT_NEAR(m.mean, 0, 0.025 * bound);
  EXPECT_NEAR(m.deviation, bound / std::sqrt(3.0), 0.02 * bound);
  const double rounding = 1 + 0x1p-23;
  EXPECT_GE(m.least, -bound * rounding);
  EXPECT_LE(m.greatest, bound * rounding);
  EXPECT_LT(m.least, -0.99 * bound);
  EXPECT_GT(m.greatest, 0.99 * bound);
}
void expect_normal(const Variable& variable, double mean, double deviation) {
  const Moments m = moments_of(variable);
  EXPECT_NEAR(m.mean, mean, 0.025 * deviation);
  EXPECT_NEAR(m.deviation, deviation, 0.025 * deviation);
  EXPECT_GT(m.greatest, mean + 3.5 * deviation);
  EXPECT_LT(m.least, mean - 3.5 * deviation);
}

class FirstParameters : public testing::TestWithParam<Dtype> {
 protected:
  nn::Init init_{3, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Dtypes, FirstParameters, testing::Values(Dtype::float32, Dtype::float64),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST_P(FirstParameters, AreDistributedAsTheirNamesSay) {
  const Shape shape{160, 250};
  expect_uniform(init_.uniform(shape, -2, 2), 2);
  expect_normal(init_.normal(shape), 0, 1);
  expect_normal(init_.normal(shape, 3, 0.5), 3, 0.5);
  expect_uniform(init_.xavier_uniform(shape), std::sqrt(6.0 / 410));
  expect_uniform(init_.xavier_uniform(shape, 2), 2 * std::sqrt(6.0 / 410));
  expect_normal(init_.xavier_normal(shape), 0, std::sqrt(2.0 / 410));
  expect_uniform(init_.kaiming_uniform(shape), std::sqrt(6.0 / 250));
  expect_uniform(init_.kaiming_uniform(shape, std::sqrt(5.0)), std::sqrt(1.0 / 250));
  expect_normal(init_.kaiming_normal(shape), 0, std::sqrt(2.0 / 250));
  expect_uniform(init_.kaiming_uniform({40, 50, 20}), std::sqrt(6.0 / 1000));
  EXPECT_EQ(largest_magnitude(init_.zeros({3}).value()), 0);
  EXPECT_EQ(reference::elements<double>(init_.ones({2}).value()), (std::vector<double>{1, 1}));
}

TEST_P(FirstParameters, OfLayersAreThoseOfPyTorch) {
  const nn::Linear linear(100, 400, init_);
  expect_uniform(linear.weight, 0.1);
  expect_uniform(nn::Linear(4, 40000, init_).bias, 0.5);
  expect_normal(nn::Embedding(400, 100, init_).weight, 0, 1);
  const nn::Gru gru(100, 100, init_, {.layers = 2, .both_directions = true});
  for (const NamedParameter& named : gru.parameters()) {
    if (named.parameter.rank() == 2) expect_uniform(named.parameter, 0.1);
  }
  const nn::MultiHeadAttention packed({.query_width = 120, .heads = 4}, init_);
  expect_uniform(packed.in_proj_weight, std::sqrt(6.0 / (120 + 360)));
  EXPECT_EQ(largest_magnitude(packed.in_proj_bias.value()), 0);
  EXPECT_EQ(largest_magnitude(packed.out_proj.bias.value()), 0);
  expect_uniform(nn::MultiHeadAttention({.query_width = 200, .heads = 4}, init_).out_proj.weight, std::sqrt(1 / 200.0));
  const nn::MultiHeadAttention apart({.query_width = 200, .key_width = 250, .value_width = 300, .heads = 4}, init_);
  expect_uniform(apart.q_proj_weight, std::sqrt(6.0 / 400));
  expect_uniform(apart.k_proj_weight, std::sqrt(6.0 / 450));
  expect_uniform(apart.v_proj_weight, std::sqrt(6.0 / 500));
  const nn::Embedding padded(5, 3, init_, {.padding = 4});
  EXPECT_EQ(largest_magnitude(padded.weight.value().slice(0, 4, 1)), 0);
  EXPECT_GT(largest_magnitude(padded.weight.value().slice(0, 3, 1)), 0);
  const nn::MultiHeadAttention gaussian_heads({.query_width = 8, .heads = 2, .score = gaussian(1.5)}, init_);
  EXPECT_EQ(reference::elements<double>(gaussian_heads.score.bandwidths.value()), (std::vector<double>{1.5, 1.5}));
}

TEST_P(FirstParameters, AreAFunctionOfTheSeedAndTheOrder) {
  nn::Init same(3, GetParam()), other(4, GetParam());
  const Variable first = init_.normal({7}), second = init_.normal({7});
  EXPECT_TRUE(same_bits(same.normal({7}).value(), first.value()));
  EXPECT_TRUE(same_bits(same.normal({7}).value(), second.value()));
  EXPECT_FALSE(same_bits(first.value(), second.value()));
  EXPECT_FALSE(same_bits(first.value(), other.normal({7}).value()));
}

TEST(Init, SaysWhatIsWrong) {
  expect_error<DtypeError>([] { nn::Init(1, Dtype::float16); }, {"Init", "float32 or float64", "float16"});
  nn::Init init(1);
  expect_error<ShapeError>([&] { init.xavier_uniform({3}); }, {"Init", "rank 2", "[3]"});
}

}  // namespace
}  // namespace qkv::test
