// autograd/gradcheck_test.cpp: gradcheck passes what is right and finds what is wrong.
#include <cmath>

#include <gtest/gtest.h>

#include <qkv/autograd.h>
#include <qkv/ops.h>

#include "support/errors.h"
#include "support/random.h"

namespace qkv::test {
namespace {

// A copy of mul's backward pass, with signs that a test may turn.
Variable multiplied(const Variable& a, const Variable& b, double sign_of_a, double sign_of_b) {
  const auto times = [](const View& x, const View& y, double sign) {
    Tensor product(x.shape(), Dtype::float64);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      product.values<double>()[static_cast<std::size_t>(i)] = sign * x.as<double>()[i] * y.as<double>()[i];
    }
    return product;
  };
  return record("multiplied", Variable(times(a.value(), b.value(), 1)), {a, b}, [=](Backward& back) {
    back.add(0, times(back.upstream(), b.value(), sign_of_a));
    back.add(1, times(back.upstream(), a.value(), sign_of_b));
  });
}

TEST(Gradcheck, PassesARightGradient) {
  const Tensor a = random_tensor({3, 4}, 1, Dtype::float64), b = random_tensor({3, 4}, 2, Dtype::float64);
  const auto result = gradcheck([](const auto& x) { return multiplied(x[0], x[1], 1, 1); }, {a, b});
  EXPECT_TRUE(result) << result.message;
  EXPECT_LT(result.worst, 1e-9);
}

TEST(Gradcheck, FindsAWrongSign) {
  const Tensor a = random_tensor({3, 4}, 1, Dtype::float64), b = random_tensor({3, 4}, 2, Dtype::float64);
  for (const int input : {0, 1}) {
    const auto result = gradcheck(
        [&](const auto& x) { return multiplied(x[0], x[1], input == 0 ? -1 : 1, input == 1 ? -1 : 1); }, {a, b});
    EXPECT_FALSE(result);
    EXPECT_NE(result.message.find("of input " + std::to_string(input)), std::string::npos) << result.message;
    EXPECT_NEAR(result.worst, 2, 1e-6);
  }
}

TEST(Gradcheck, FindsAWrongSignAlongDirections) {
  const Tensor a = random_tensor({30, 40}, 1, Dtype::float64), b = random_tensor({30, 40}, 2, Dtype::float64);
  EXPECT_TRUE(gradcheck([](const auto& x) { return multiplied(x[0], x[1], 1, 1); }, {a, b}));
  const auto result = gradcheck([](const auto& x) { return multiplied(x[0], x[1], 1, -1); }, {a, b});
  EXPECT_FALSE(result);
  EXPECT_NE(result.message.find("of input 1"), std::string::npos) << result.message;
}

TEST(Gradcheck, FindsAnErrorInOneElement) {
  const Tensor a = random_tensor({10}, 1, Dtype::float64);
  const auto result = gradcheck(
      [](const std::vector<Variable>& x) {
        return record("identity", x[0].detach(), {x[0]}, [](Backward& back) {
          Tensor dx = back.take_upstream();
          dx.values<double>()[7] *= 1 + 2e-6;
          back.add(0, std::move(dx));
        });
      },
      {a});
  EXPECT_FALSE(result);
  EXPECT_NE(result.message.find("element 7"), std::string::npos) << result.message;
}

TEST(Gradcheck, FindsAForgottenGradient) {
  const Tensor a = random_tensor({3}, 1, Dtype::float64);
  EXPECT_FALSE(gradcheck([](const auto& x) { return x[0] * x[0].detach(); }, {a}));
  EXPECT_FALSE(gradcheck([](const auto& x) { return x[0].detach(); }, {a}));
}

TEST(Gradcheck, FindsNan) {
  const Tensor a = random_tensor({3}, 1, Dtype::float64);
  const auto result = gradcheck([](const auto& x) { return multiplied(x[0], x[0], std::nan(""), 1); }, {a});
  EXPECT_FALSE(result);
}

TEST(Gradcheck, LeavesTheInputsAsTheyWere) {
  const Tensor a = Tensor::of<double>({1, 2, 3}, {3});
  EXPECT_TRUE(gradcheck([](const auto& x) { return x[0] * x[0]; }, {a}));
  EXPECT_EQ(a.values<double>()[1], 2);
}

TEST(Gradcheck, RefusesFloat32) {
  const Tensor a({3}), b({3}, Dtype::float64);
  const auto twice = [](const std::vector<Variable>& x) { return x[0] + x[0]; };
  expect_error<DtypeError>([&] { gradcheck(twice, {a}); }, {"gradcheck", "input 0", "float32", "float64"});
  expect_error<DtypeError>([&] { gradcheck([](const auto&) { return Variable(Tensor({3})); }, {b}); },
                           {"gradcheck", "return float64"});
}

}  // namespace
}  // namespace qkv::test
