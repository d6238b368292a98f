// ops/values_test.cpp: what ops compute, against naive double precision. That their gradients belong to what they
// compute, every_op_test.cpp shows.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/masked_softmax.h>
#include <qkv/ops.h>

#include "reference/elements.h"
#include "support/close.h"
#include "support/isas.h"
#include "support/random.h"

namespace qkv::test {
namespace {

std::vector<double> numbers(const View& view) { return reference::elements<double>(view); }
std::vector<double> numbers(const Variable& variable) { return numbers(variable.value()); }

Variable random_variable(const Shape& shape, std::uint64_t seed, Dtype dtype = Dtype::float64) {
  return Variable(random_tensor(shape, seed, dtype));
}

void expect_near(const Variable& got, const Shape& shape, const std::vector<double>& expected, double allowed = 1e-13) {
  ASSERT_EQ(got.shape(), shape);
  const std::vector<double> values = numbers(got);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], allowed * std::max(1.0, std::abs(expected[i]))) << "element " << i;
  }
}

TEST(Linear, IsXTimesWTransposedPlusB) {
  for (const std::int64_t in : {0, 1, 5, 300}) {
    const Variable x = random_variable({2, 3, in}, 1), W = random_variable({4, in}, 2), b = random_variable({4}, 3);
    const auto xs = numbers(x), Ws = numbers(W), bs = numbers(b);
    std::vector<double> expected;
    for (std::size_t row = 0; row < 6; ++row) {
      for (std::size_t o = 0; o < 4; ++o) {
        double y = bs[o];
        const auto n = static_cast<std::size_t>(in);
        for (std::size_t i = 0; i < n; ++i) y += xs[row * n + i] * Ws[o * n + i];
        expected.push_back(y);
      }
    }
    expect_near(linear(x, W, b), {2, 3, 4}, expected, 1e-12);
  }
}

TEST(Matmul, BroadcastsBatches) {
  const Variable a = random_variable({2, 1, 3, 4}, 1), b = random_variable({5, 4, 2}, 2);
  const Variable c = matmul(a, b);
  ASSERT_EQ(c.shape(), (Shape{2, 5, 3, 2}));
  const auto as = numbers(a), bs = numbers(b), cs = numbers(c);
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 5; ++j) {
      for (std::size_t m = 0; m < 3; ++m) {
        for (std::size_t n = 0; n < 2; ++n) {
          double sum = 0;
          for (std::size_t k = 0; k < 4; ++k) sum += as[(i * 3 + m) * 4 + k] * bs[(j * 4 + k) * 2 + n];
          EXPECT_NEAR(cs[((i * 5 + j) * 3 + m) * 2 + n], sum, 1e-14);
        }
      }
    }
  }
}

TEST(Arithmetic, Broadcasts) {
  const Variable a = Variable(Tensor::of<double>({1, 2, 3, 4, 5, 6}, {2, 3})), b(Tensor::of<double>({2, 4}, {2, 1}));
  expect_near(a + b, {2, 3}, {3, 4, 5, 8, 9, 10});
  expect_near(a - b, {2, 3}, {-1, 0, 1, 0, 1, 2});
  expect_near(a * b, {2, 3}, {2, 4, 6, 16, 20, 24});
  expect_near(a / b, {2, 3}, {0.5, 1, 1.5, 1, 1.25, 1.5});
  const Variable c(Tensor::of<double>({10, 20}, {2, 1, 1}));
  expect_near(c + b, {2, 2, 1}, {12, 14, 22, 24});
  expect_near(Variable(Tensor::of<double>({3}, {})) * b, {2, 1}, {6, 12});
  expect_near(2 * b, {2, 1}, {4, 8});
  expect_near(-b, {2, 1}, {-2, -4});
}

TEST(Sum, GoesOverTheAxesThatAreNamed) {
  const Variable x = random_variable({3, 4, 5}, 1);
  const auto xs = numbers(x);
  for (int flags = 1; flags < 8; ++flags) {
    SumOptions options;
    for (int axis = 0; axis < 3; ++axis) {
      if ((flags >> axis & 1) != 0) options.axes.push_back(axis == 2 ? -1 : axis);
    }
    std::vector<std::int64_t> kept;
    for (int axis = 0; axis < 3; ++axis) {
      if ((flags >> axis & 1) == 0) kept.push_back(x.extent(axis));
    }
    const Shape shape{std::span<const std::int64_t>(kept)};
    std::vector<double> sums(static_cast<std::size_t>(shape.elements()), 0.0);
    for (std::size_t i = 0; i < 60; ++i) {
      const std::size_t at[] = {i / 20, i / 5 % 4, i % 5};
      std::size_t to = 0;
      for (int axis = 0; axis < 3; ++axis) {
        if ((flags >> axis & 1) == 0) to = to * static_cast<std::size_t>(x.extent(axis)) + at[axis];
      }
      sums[to] += xs[i];
    }
    expect_near(sum(x, options), shape, sums);
    const double summands = 60.0 / static_cast<double>(sums.size());
    for (double& s : sums) s /= summands;
    expect_near(mean(x, options), shape, sums);
  }
}

TEST(Sum, OfFloat32KeepsWhatAFloatWouldLose) {
  Tensor x({1'000'001});
  std::fill(x.values<float>().begin(), x.values<float>().end(), 1e-8f);
  x.values<float>()[0] = 1;
  EXPECT_NEAR(sum(Variable(std::move(x))).value().as<float>()[0], 1.01f, 1e-7f);
}

TEST(Mean, OverNothingIsNan) { EXPECT_TRUE(std::isnan(numbers(mean(Variable(Tensor({0, 3}))))[0])); }

double normal_below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2)); }

TEST(Functions, AreRightOverTheirWholeRangeOnEveryIsa) {
  const struct {
    const char* name;
    std::function<Variable(const Variable&)> op;
    std::function<double(double)> exact;
    double relative;  // error, in roundings of float32
    double absolute;
  } cases[] = {
      {"tanh", [](const auto& x) { return tanh(x); }, [](double x) { return std::tanh(x); }, 8, 0},
      // The argument of the exponential is rounded, which costs as many roundings as it is large.
      {"sigmoid", [](const auto& x) { return sigmoid(x); }, [](double x) { return 1 / (1 + std::exp(-x)); }, 120,
       1e-37},
      {"relu", [](const auto& x) { return relu(x); }, [](double x) { return std::max(x, 0.0); }, 0, 0},
      {"gelu", [](const auto& x) { return gelu(x); }, [](double x) { return x * normal_below(x); }, 200, 1e-36},
      {"exp", [](const auto& x) { return exp(x); }, [](double x) { return std::exp(x); }, 8, 1e-37},
      {"log", [](const auto& x) { return log(x); }, [](double x) { return std::log(x); }, 8, 1e-7},
  };
  on_every_isa([&] {
    // Without fused multiply-add, products are rounded once more.
    const double slack = current_isa() == Isa::baseline ? 16 : 1;
    for (const auto& c : cases) {
      SCOPED_TRACE(c.name);
      Tensor x({20'001});
      for (std::size_t i = 0; i < 20'001; ++i) x.values<float>()[i] = static_cast<float>(i) * 0.008f - 80;
      if (std::string(c.name) == "log") {
        for (float& value : x.values<float>()) value = std::exp(value);
      }
      const auto arguments = numbers(x), got = numbers(c.op(Variable(std::move(x))));
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double exact = c.exact(arguments[i]);
        ASSERT_NEAR(got[i], exact, slack * c.relative * 0x1p-24 * std::abs(exact) + c.absolute)
            << "of " << arguments[i];
      }
    }
  });
}

TEST(Functions, OfWhatIsNoNumber) {
  const float inf = HUGE_VALF, nan = std::nanf("");
  on_every_isa([&] {
    const Variable x(Tensor::of<float>({nan, inf, -inf, 0, 100, -110}, {6}));
    const auto values = [&](const Variable& y) {
      const View view = y.value();
      return std::vector<float>(view.as<float>(), view.as<float>() + view.elements());
    };
    for (const auto& y : {tanh(x), sigmoid(x), relu(x), gelu(x), gelu(x, GeluForm::tanh), exp(x), log(x)}) {
      EXPECT_TRUE(std::isnan(values(y)[0]));
    }
    EXPECT_EQ(values(tanh(x))[1], 1);
    EXPECT_EQ(values(tanh(x))[2], -1);
    EXPECT_EQ(values(sigmoid(x))[1], 1);
    EXPECT_NEAR(values(sigmoid(x))[2], 0, 1e-37);
    EXPECT_EQ(values(sigmoid(x))[3], 0.5f);
    EXPECT_EQ(values(relu(x))[1], inf);
    EXPECT_EQ(values(relu(x))[2], 0);
    EXPECT_EQ(values(exp(x))[1], inf);
    EXPECT_EQ(values(exp(x))[2], 0);
    EXPECT_EQ(values(exp(x))[3], 1);
    EXPECT_EQ(values(exp(x))[4], inf);
    EXPECT_EQ(values(exp(x))[5], 0);
    EXPECT_EQ(values(log(x))[1], inf);
    EXPECT_EQ(values(log(x))[3], -inf);
  });
}

std::vector<double> softmax_of(std::vector<double> x) {
  const double max = x.empty() ? 0 : *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value - max);
  for (double& value : x) value /= sum;
  return x;
}

TEST(Softmax, IsTheExponentialsOverTheirSum) {
  on_every_isa([] {
    for (const std::int64_t width : {1, 2, 7, 8, 31, 32, 33, 300}) {
      const Variable x = random_variable({3, width}, 1), big = scale(x, 1000);
      for (const Variable& scores : {x, big}) {
        std::vector<double> expected;
        const auto all = numbers(scores);
        for (std::int64_t r = 0; r < 3; ++r) {
          const auto row = softmax_of({all.begin() + r * width, all.begin() + (r + 1) * width});
          expected.insert(expected.end(), row.begin(), row.end());
        }
        expect_near(softmax(scores), {3, width}, expected, 1e-12);
      }
    }
  });
}

TEST(MaskedSoftmax, IsMaskedSoftmaxAndPassesNothingToWhatDoesNotCount) {
  const Variable scores = parameter(random_tensor({2, 2, 3}, 1, Dtype::float64));
  scores.mutable_value().as<double>()[2] = std::nan("");  // of the first sequence, whose length is 2
  const Tensor lengths = Tensor::of<std::int32_t>({2, 0}, {2});
  const Variable y = masked_softmax(scores, lengths, OnEmpty::uniform);
  EXPECT_TRUE(same_bits(y.value(), masked_softmax(scores.value(), lengths, OnEmpty::uniform)));
  Tensor upstream = random_tensor({2, 2, 3}, 2, Dtype::float64);
  upstream.values<double>()[2] = std::nan("");
  backward(y, upstream);
  const auto dx = numbers(scores.grad());
  EXPECT_NE(dx[0], 0);
  EXPECT_NEAR(dx[0] + dx[1], 0, 1e-15);
  EXPECT_EQ(dx[2], 0);
  for (std::size_t i = 6; i < 12; ++i) EXPECT_EQ(dx[i], 0);
}

TEST(LayerNorm, HasMeanAndVarianceOfGainAndShift) {
  on_every_isa([] {
    for (const std::int64_t width : {1, 2, 7, 33, 300}) {
      // Far from 0, where the variance is easily lost.
      const Variable x(random_tensor({4, width}, 1, Dtype::float64, 3)),
          far = x + Variable(Tensor::of<double>({1e4}, {}));
      const Variable gain = random_variable({width}, 2), shift = random_variable({width}, 3);
      for (const Variable& rows : {x, far}) {
        std::vector<double> expected;
        const auto all = numbers(rows), g = numbers(gain), s = numbers(shift);
        for (std::int64_t r = 0; r < 4; ++r) {
          const std::vector<double> row(all.begin() + r * width, all.begin() + (r + 1) * width);
          double mean = 0, variance = 0;
          for (const double value : row) mean += value / static_cast<double>(width);
          for (const double value : row) variance += (value - mean) * (value - mean) / static_cast<double>(width);
          for (std::size_t j = 0; j < row.size(); ++j) {
            expected.push_back((row[j] - mean) / std::sqrt(variance + 1e-3) * g[j] + s[j]);
          }
        }
        expect_near(layer_norm(rows, gain, shift, 1e-3), {4, width}, expected, 1e-10);
      }
    }
  });
}

TEST(Embedding, LooksUpRows) {
  const Variable table(Tensor::of<double>({1, 2, 3, 4, 5, 6}, {3, 2}));
  const Tensor ids = Tensor::of<std::int32_t>({2, 0, 2, 1}, {2, 2});
  expect_near(embedding(table, ids), {2, 2, 2}, {5, 6, 1, 2, 5, 6, 3, 4});
}

TEST(Embedding, ItsGradientKnowsTheRows) {
  const Variable table = parameter(Tensor({9, 2}));
  backward(sum(embedding(table, Tensor::of<std::int32_t>({7, 3, 7}, {3}))));
  const View rows = table.grad_rows();
  ASSERT_EQ(rows.elements(), 2);
  EXPECT_EQ(rows.as<std::int64_t>()[0], 3);
  EXPECT_EQ(rows.as<std::int64_t>()[1], 7);
}

TEST(Embedding, GivesNoGradientToTheFixedRow) {
  const Variable table = parameter(Tensor({5, 2}));
  const Tensor ids = Tensor::of<std::int64_t>({4, 1, 4, 3, 1}, {5});
  backward(sum(embedding(table, ids, 4)));
  EXPECT_TRUE(same_bits(table.grad_rows(), Tensor::of<std::int64_t>({1, 3}, {2})));
  EXPECT_TRUE(same_bits(table.grad(), Tensor::of<float>({0, 0, 2, 2, 0, 0, 1, 1, 0, 0}, {5, 2})));
  table.zero_grad();
  backward(sum(embedding(table, Tensor::of<std::int64_t>({4, 4}, {2}), 4)));
  EXPECT_TRUE(same_bits(table.grad(), Tensor({5, 2})));
}

TEST(Dropout, DropsTheShareThatIsSaidAndScalesTheRest) {
  Tensor ones({100, 1000});
  std::fill(ones.values<float>().begin(), ones.values<float>().end(), 1.0f);
  const Variable x(std::move(ones));
  const DropoutOptions options{.probability = 0.2, .training = true, .seed = 3};
  const auto y = numbers(dropout(x, options));
  std::size_t dropped = 0;
  for (const double value : y) {
    if (value == 0) {
      ++dropped;
    } else {
      ASSERT_NEAR(value, 1.25, 1e-6);
    }
  }
  EXPECT_NEAR(static_cast<double>(dropped), 20'000, 4 * std::sqrt(100'000 * 0.2 * 0.8));
  EXPECT_EQ(y, numbers(dropout(x, options)));
  EXPECT_NE(y, numbers(dropout(x, {.probability = 0.2, .training = true, .seed = 4})));
}

TEST(Dropout, IsTheSameInFloat64AndOnEveryIsa) {
  const Variable x(random_tensor({1001}, 1)), wide(Tensor::copy_of(x.value(), Dtype::float64));
  const DropoutOptions options{.probability = 0.3, .training = true, .seed = 5};
  const auto exact = numbers(dropout(wide, options));
  on_every_isa([&] {
    const auto got = numbers(dropout(x, options));
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], exact[i], 1e-6);
  });
}

TEST(Dropout, DoesNothingOutsideTraining) {
  const Variable x = random_variable({5}, 1);
  EXPECT_TRUE(same_bits(dropout(x, {.probability = 0.9}).value(), x.value()));
  EXPECT_TRUE(same_bits(dropout(x, {.probability = 0, .training = true}).value(), x.value()));
}

TEST(Views, SeeTheSameElements) {
  const Variable x(Tensor::of<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  expect_near(reshape(x, {3, 2}), {3, 2}, {1, 2, 3, 4, 5, 6});
  expect_near(transpose(x, 0, 1), {3, 2}, {1, 4, 2, 5, 3, 6});
  expect_near(reshape(transpose(x, 0, 1), {6}), {6}, {1, 4, 2, 5, 3, 6});
  expect_near(slice(x, -1, 1, 2), {2, 2}, {2, 3, 5, 6});
  const auto parts = split(x, 1, {1, 2});
  expect_near(parts[0], {2, 1}, {1, 4});
  expect_near(parts[1], {2, 2}, {2, 3, 5, 6});
  expect_near(concat({parts[1], parts[0]}, 1), {2, 3}, {2, 3, 1, 5, 6, 4});
  expect_near(concat({x, x}, 0), {4, 3}, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
  EXPECT_EQ(transpose(x, 0, 1).value().data(), x.value().data());  // without a copy
  EXPECT_EQ(reshape(x, {6}).value().data(), x.value().data());
}

double naive_loss(const Variable& logits, const std::vector<std::int64_t>& targets, double smoothing) {
  const auto all = numbers(logits);
  const auto width = static_cast<std::size_t>(logits.shape().back());
  double loss = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    if (targets[r] < 0) continue;
    const auto p = softmax_of({all.begin() + static_cast<std::ptrdiff_t>(r * width),
                               all.begin() + static_cast<std::ptrdiff_t>((r + 1) * width)});
    for (std::size_t j = 0; j < width; ++j) {
      const bool is_target = static_cast<std::int64_t>(j) == targets[r];
      loss -= std::log(p[j]) * ((is_target ? 1 - smoothing : 0) + smoothing / static_cast<double>(width));
    }
  }
  return loss;
}

TEST(CrossEntropy, IsTheNegativeLogarithmOfTheTargetsProbability) {
  on_every_isa([] {
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      const Variable logits = random_variable({4, 33}, 1);
      const Tensor targets = Tensor::of<std::int64_t>({3, 32, -100, 0}, {4});
      const Tensor keep = Tensor::of<bool>({true, true, true, false}, {4});
      const double exact = naive_loss(logits, {3, 32, -1, -1}, smoothing);
      CrossEntropyOptions options{.smoothing = smoothing, .ignore = -100, .keep = keep, .reduction = Reduction::sum};
      EXPECT_NEAR(numbers(cross_entropy(logits, targets, options))[0], exact, 1e-12);
      options.reduction = Reduction::mean;
      EXPECT_NEAR(numbers(cross_entropy(logits, targets, options))[0], exact / 2, 1e-12);
    }
  });
}

TEST(CrossEntropy, OfLargeLogitsIsFinite) {
  const Variable logits(Tensor::of<float>({1e4f, -1e4f, 0}, {1, 3}));
  EXPECT_EQ(numbers(cross_entropy(logits, Tensor::of<std::int64_t>({0}, {1})))[0], 0);
  EXPECT_EQ(numbers(cross_entropy(logits, Tensor::of<std::int64_t>({1}, {1})))[0], 2e4);
}

TEST(CrossEntropy, OverNoRowsIsNanAsAMeanAndZeroAsASum) {
  const Variable logits = random_variable({2, 3}, 1);
  const Tensor targets = Tensor::of<std::int64_t>({9, 9}, {2});
  EXPECT_TRUE(std::isnan(numbers(cross_entropy(logits, targets, {.ignore = 9}))[0]));
  EXPECT_EQ(numbers(cross_entropy(logits, targets, {.ignore = 9, .reduction = Reduction::sum}))[0], 0);
}

// Rows on both sides of the blocks of the fused form, some of which do not count and hold NaN.
TEST(LinearCrossEntropy, IsCrossEntropyOfLinear) {
  for (const std::int64_t rows : {1, 255, 256, 257, 600}) {
    Tensor ids = random_integers({rows}, 4, 0, 16);
    Tensor with_nan = random_tensor({rows, 9}, 1, Dtype::float64);
    for (std::int64_t r = 0; r < rows; r += 3) {
      ids.values<std::int64_t>()[static_cast<std::size_t>(r)] = rows > 1 ? -1 : 0;
      if (rows > 1) with_nan.values<double>()[static_cast<std::size_t>(r * 9)] = std::nan("");
    }
    const Variable x = parameter(std::move(with_nan)), W = parameter(random_tensor({17, 9}, 2, Dtype::float64)),
                   b = parameter(random_tensor({17}, 3, Dtype::float64));
    const CrossEntropyOptions options{.smoothing = 0.1, .ignore = -1};
    std::vector<Tensor> gradients;
    const Variable plain = cross_entropy(linear(x, W.detach(), b), ids, options);
    const Variable fused = linear_cross_entropy(x, W, b, ids, options);
    EXPECT_NEAR(numbers(fused)[0], numbers(plain)[0], 1e-13);
    backward(plain);
    const auto dx = numbers(x.grad()), db = numbers(b.grad());
    x.zero_grad();
    b.zero_grad();
    backward(fused);
    const auto fused_dx = numbers(x.grad()), fused_db = numbers(b.grad());
    for (std::size_t i = 0; i < dx.size(); ++i) ASSERT_NEAR(fused_dx[i], dx[i], 1e-14);
    for (std::size_t i = 0; i < db.size(); ++i) ASSERT_NEAR(fused_db[i], db[i], 1e-13);
    for (const double value : numbers(W.grad())) ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace qkv::test
