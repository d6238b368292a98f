// attention/d2l_test.cpp: what Dive into Deep Learning computes in its chapter on attention, by its own formulas,
// written out here in double precision (S15).
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/attend.h>
#include <qkv/masked_softmax.h>

#include "reference/elements.h"
#include "support/isas.h"
#include "support/random.h"

namespace qkv::test {
namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix matrix(const View& x) {  // of rank 2
  const std::vector<double> all = reference::elements<double>(x);
  const auto width = static_cast<std::ptrdiff_t>(x.extent(1));
  Matrix rows;
  for (std::ptrdiff_t r = 0; r < x.extent(0); ++r)
    rows.emplace_back(all.begin() + r * width, all.begin() + (r + 1) * width);
  return rows;
}
Matrix matrix(const View& x, std::int64_t b) {  // sequence b of rank 3
  const View one = x.slice(0, b, 1);
  return matrix(View(one.data(), one.dtype(), {x.extent(1), x.extent(2)}, {x.stride(1), x.stride(2)}));
}

Matrix times(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b.empty() ? 0 : b[0].size(), 0));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t j = 0; j < b[k].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t(a.empty() ? 0 : a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[i].size(); ++j) t[j][i] = a[i][j];
  }
  return t;
}

// masked_softmax: what lies beyond the valid length is filled with -1e6 before the softmax.
Matrix d2l_masked_softmax(Matrix scores, const std::vector<std::int64_t>& valid_lens) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    for (std::size_t j = 0; j < scores[i].size(); ++j) {
      if (static_cast<std::int64_t>(j) >= valid_lens[i]) scores[i][j] = -1e6;
    }
    const double largest = *std::max_element(scores[i].begin(), scores[i].end());
    double sum = 0;
    for (double& s : scores[i]) sum += s = std::exp(s - largest);
    for (double& s : scores[i]) s /= sum;
  }
  return scores;
}

// DotProductAttention: softmax(Q K^T / sqrt(d)) V
Matrix d2l_dot_product(const Matrix& q, const Matrix& k, const Matrix& v, std::int64_t valid_len) {
  Matrix scores = times(q, transposed(k));
  for (auto& row : scores) {
    for (double& s : row) s /= std::sqrt(static_cast<double>(q[0].size()));
  }
  return times(d2l_masked_softmax(scores, std::vector<std::int64_t>(q.size(), valid_len)), v);
}

void expect_close(const View& got, const std::vector<Matrix>& expected, double tolerance = 2e-6) {
  const std::vector<double> values = reference::elements<double>(got);
  std::size_t n = 0;
  for (const Matrix& sequence : expected) {
    for (const auto& row : sequence) {
      for (const double x : row) {
        ASSERT_LT(n, values.size());
        ASSERT_NEAR(values[n], x, tolerance) << "element " << n;
        ++n;
      }
    }
  }
  EXPECT_EQ(n, values.size());
}

TEST(D2l, MaskedSoftmaxWithALengthPerSequence) {
  const Tensor scores = random_tensor({2, 2, 4}, 1), lens = Tensor::of<std::int64_t>({2, 3}, {2});
  expect_close(masked_softmax(scores, lens),
               {d2l_masked_softmax(matrix(scores, 0), {2, 2}), d2l_masked_softmax(matrix(scores, 1), {3, 3})});
}

TEST(D2l, MaskedSoftmaxWithALengthPerQuery) {
  const Tensor scores = random_tensor({2, 2, 4}, 1), lens = Tensor::of<std::int64_t>({1, 3, 2, 4}, {2, 2});
  expect_close(masked_softmax(scores, lens),
               {d2l_masked_softmax(matrix(scores, 0), {1, 3}), d2l_masked_softmax(matrix(scores, 1), {2, 4})});
}

// A length of 0 leaves nothing but fill: equal weights for all, padding included.
TEST(D2l, MaskedSoftmaxOfNothingIsUniform) {
  const Tensor scores = random_tensor({2, 2, 4}, 1), lens = Tensor::of<std::int64_t>({0, 3}, {2});
  expect_close(masked_softmax(scores, lens, OnEmpty::uniform),
               {d2l_masked_softmax(matrix(scores, 0), {0, 0}), d2l_masked_softmax(matrix(scores, 1), {3, 3})});
}

// Its example: queries (2, 1, 2), keys (2, 10, 2), values (2, 10, 4), valid_lens (2, 6).
TEST(D2l, ScaledDotProductAttention) {
  const Tensor q = random_tensor({2, 1, 2}, 1), k = random_tensor({2, 10, 2}, 2), v = random_tensor({2, 10, 4}, 3);
  for (const std::array<std::int64_t, 2>& valid : {std::array<std::int64_t, 2>{2, 6}, {0, 10}}) {
    const Tensor lens = Tensor::of<std::int64_t>({valid[0], valid[1]}, {2});
    on_every_isa([&] {
      expect_close(attend(q, k, v, {.mask = lengths(lens), .on_empty = OnEmpty::uniform}).out,
                   {d2l_dot_product(matrix(q, 0), matrix(k, 0), matrix(v, 0), valid[0]),
                    d2l_dot_product(matrix(q, 1), matrix(k, 1), matrix(v, 1), valid[1])});
    });
  }
}

// Its example: queries 20 wide, keys 2 wide, 8 hidden units, no biases.
TEST(D2l, AdditiveAttention) {
  const Tensor q = random_tensor({2, 1, 20}, 1), k = random_tensor({2, 10, 2}, 2), v = random_tensor({2, 10, 4}, 3),
               lens = Tensor::of<std::int64_t>({2, 6}, {2});
  // nn.Linear starts with numbers up to 1 / sqrt(inputs).
  const Tensor W_q = random_tensor({8, 20}, 4, Dtype::float32, 0.13),
               W_k = random_tensor({8, 2}, 5, Dtype::float32, 0.4), w_v = random_tensor({1, 8}, 6, Dtype::float32, 0.2);
  std::vector<Matrix> expected;
  for (std::int64_t b = 0; b < 2; ++b) {
    const Matrix queries = times(matrix(q, b), transposed(matrix(W_q))),
                 keys = times(matrix(k, b), transposed(matrix(W_k)));
    Matrix scores(queries.size(), std::vector<double>(keys.size(), 0));
    for (std::size_t i = 0; i < queries.size(); ++i) {
      for (std::size_t j = 0; j < keys.size(); ++j) {
        for (std::size_t e = 0; e < 8; ++e) scores[i][j] += matrix(w_v)[0][e] * std::tanh(queries[i][e] + keys[j][e]);
      }
    }
    expected.push_back(times(d2l_masked_softmax(scores, {b == 0 ? 2 : 6}), matrix(v, b)));
  }
  const View w(w_v.view().data(), Dtype::float32, {8});
  on_every_isa(
      [&] { expect_close(attend(q, k, v, {.score = additive(W_q, W_k, w), .mask = lengths(lens)}).out, expected); });
}

// Its example: 100 hidden units, 5 heads, 4 queries, 6 pairs, valid_lens (3, 2), no biases. X and Y are ones there,
// where any mistake in the heads goes unseen; so random numbers too.
TEST(D2l, MultiHeadAttention) {
  const std::int64_t hiddens = 100, heads = 5;
  const Tensor lens = Tensor::of<std::int64_t>({3, 2}, {2});
  const auto weight = [&](std::uint64_t seed) { return random_tensor({hiddens, hiddens}, seed, Dtype::float32, 0.06); };
  const Tensor W_q = weight(1), W_k = weight(2), W_v = weight(3), W_o = weight(4);
  const auto linear = [&](const View& x, const Tensor& W) {
    Tensor y({2, x.extent(1), hiddens});
    std::size_t n = 0;
    for (std::int64_t b = 0; b < 2; ++b) {
      for (const auto& row : times(matrix(x, b), transposed(matrix(W)))) {
        for (const double e : row) y.values<float>()[n++] = static_cast<float>(e);
      }
    }
    return y;
  };
  for (const bool ones : {true, false}) {
    Tensor X = random_tensor({2, 4, hiddens}, 5), Y = random_tensor({2, 6, hiddens}, 6);
    if (ones) {
      std::ranges::fill(X.values<float>(), 1.0f);
      std::ranges::fill(Y.values<float>(), 1.0f);
    }
    const Tensor q = linear(X, W_q), k = linear(Y, W_k), v = linear(Y, W_v);

    // transpose_qkv, dot-product attention per head, transpose_output, W_o
    std::vector<Matrix> expected;
    for (std::int64_t b = 0; b < 2; ++b) {
      const std::int64_t valid = b == 0 ? 3 : 2, width = hiddens / heads;
      Matrix concatenated(4, std::vector<double>(static_cast<std::size_t>(hiddens)));
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto head = [&](const Tensor& x) { return matrix(x.view().slice(2, h * width, width), b); };
        const Matrix out = d2l_dot_product(head(q), head(k), head(v), valid);
        for (std::size_t i = 0; i < 4; ++i) {
          for (std::size_t d = 0; d < static_cast<std::size_t>(width); ++d) {
            concatenated[i][static_cast<std::size_t>(h * width) + d] = out[i][d];
          }
        }
      }
      expected.push_back(times(concatenated, transposed(matrix(W_o))));
    }
    on_every_isa([&] {
      // Heads are a view of the projections; no copy is made.
      const auto by_heads = [&](const Tensor& x) { return x.view().split(2, heads).swapped(1, 2); };
      Tensor pooled({2, 4, hiddens});
      attend_into(by_heads(q), by_heads(k), by_heads(v), {.out = pooled.view().split(2, heads).swapped(1, 2)},
                  {.mask = lengths(lens)});
      expect_close(linear(pooled, W_o), expected);
    });
  }
}

// Nadaraya-Watson kernel regression: 40 pairs, queries 0, 0.1, .. 4.9, weights kernel(x - x_i) over their sum.
class KernelRegression : public testing::Test {
 public:
  Tensor x_train{Shape{40, 1}}, y_train{Shape{40, 1}}, x_val{Shape{50, 1}};
  KernelRegression() {
    Random random(1);
    auto x = x_train.values<float>();
    for (float& e : x) e = static_cast<float>(5 * random.uniform());
    std::sort(x.begin(), x.end());
    for (std::size_t i = 0; i < 40; ++i) {
      y_train.values<float>()[i] =
          static_cast<float>(2 * std::sin(static_cast<double>(x[i])) + static_cast<double>(x[i]) + random.normal());
    }
    for (std::size_t i = 0; i < 50; ++i) x_val.values<float>()[i] = 0.1f * static_cast<float>(i);
  }

  template <class Kernel>
  void expect_weights(const Score& score, const Weigh& weigh, Kernel kernel) const {
    on_every_isa([&] {
      const Attended got = attend(x_val, x_train, y_train, {.score = score, .weigh = weigh, .want_weights = true});
      for (std::size_t i = 0; i < 50; ++i) {
        std::vector<double> k(40);
        double sum = 0, y_hat = 0;
        for (std::size_t j = 0; j < 40; ++j) {
          sum += k[j] =
              kernel(static_cast<double>(x_train.values<float>()[j]) - static_cast<double>(x_val.values<float>()[i]));
        }
        for (std::size_t j = 0; j < 40; ++j) {
          ASSERT_NEAR(got.weights.values<float>()[i * 40 + j], k[j] / sum, 1e-5) << "query " << i << ", key " << j;
          y_hat += static_cast<double>(y_train.values<float>()[j]) * k[j] / sum;
        }
        ASSERT_NEAR(got.out.values<float>()[i], y_hat, 5e-5) << "query " << i;
      }
    });
  }
};

TEST_F(KernelRegression, GaussianOfEveryWidthOfTheChapter) {
  for (const double sigma : {0.1, 0.2, 0.5, 1.0}) {
    const auto kernel = [&](double x) { return std::exp(-x * x / (2 * sigma * sigma)); };
    expect_weights(gaussian(sigma), normalize(), kernel);
    expect_weights(gaussian(sigma), softmax(), kernel);
  }
}

TEST_F(KernelRegression, Boxcar) {
  expect_weights(boxcar(), normalize(), [](double x) { return std::abs(x) < 1 ? 1 : 0; });
}

TEST_F(KernelRegression, Constant) {
  expect_weights(constant(), normalize(), [](double) { return 1; });
}

// What its code calls "epanechikov" is the triangular kernel.
TEST_F(KernelRegression, Triangular) {
  expect_weights(triangular(), normalize(), [](double x) { return std::max(0.0, 1 - std::abs(x)); });
}

TEST_F(KernelRegression, Epanechnikov) {
  expect_weights(epanechnikov(), normalize(), [](double x) { return 0.75 * std::max(0.0, 1 - x * x); });
}

}  // namespace
}  // namespace qkv::test
