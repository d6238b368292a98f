// nn/multi_head_test.cpp: what multi-head attention is, by the formulas of the theory and by its own parts.
#include <cmath>

#include <gtest/gtest.h>

#include "nn/layers.h"
#include "reference/elements.h"
#include "support/close.h"
#include "support/errors.h"

namespace qkv::test {
namespace {

using Numbers = std::vector<double>;

Numbers numbers_of(const Variable& variable) { return reference::elements<double>(variable.value()); }

double at(const Numbers& matrix, std::int64_t columns, std::int64_t row, std::int64_t column) {
  return matrix[static_cast<std::size_t>(row * columns + column)];
}

// Rows first .. first + count - 1 of W, and of b, times x.
Numbers projected(const Variable& W, const Variable& b, std::int64_t b_first, std::int64_t first, std::int64_t count,
                  const Numbers& x) {
  const Numbers weights = numbers_of(W), added = numbers_of(b);
  Numbers y;
  for (std::int64_t r = first; r < first + count; ++r) {
    double sum = added[static_cast<std::size_t>(b_first + r)];
    for (std::int64_t c = 0; c < W.extent(1); ++c)
      sum += at(weights, W.extent(1), r, c) * x[static_cast<std::size_t>(c)];
    y.push_back(sum);
  }
  return y;
}

Numbers row_of(const Variable& x, std::int64_t b, std::int64_t t) {
  const Numbers all = numbers_of(x);
  const auto first = all.begin() + (b * x.extent(1) + t) * x.extent(2);
  return Numbers(first, first + x.extent(2));
}

// h_i = f(W_i^q q, W_i^k k, W_i^v v) with f additive attention pooling over the first `seen` keys; y = W_o [h_1 ...
// h_h].
Numbers naive(const nn::MultiHeadAttention& layer, const Variable& query, const Variable& key, const Variable& value,
              std::int64_t b, std::int64_t i, std::int64_t seen) {
  const nn::MultiHeadOptions& o = layer.widths;
  const std::int64_t group = o.heads / o.key_heads, E = o.hidden_width;
  const std::int64_t keys_first = o.heads * o.head_query_width;
  const std::int64_t values_first = keys_first + o.key_heads * o.head_key_width;
  const Numbers W_q = numbers_of(layer.score.query_weights), W_k = numbers_of(layer.score.key_weights);
  const Numbers w = numbers_of(layer.score.hidden_weights);
  Numbers heads;
  for (std::int64_t h = 0; h < o.heads; ++h) {
    const std::int64_t kept = h / group;
    const Numbers q = projected(layer.q_proj_weight, layer.in_proj_bias, 0, h * o.head_query_width, o.head_query_width,
                                row_of(query, b, i));
    Numbers exponentials;
    std::vector<Numbers> values;
    double sum = 0;
    for (std::int64_t j = 0; j < seen; ++j) {
      const Numbers k = projected(layer.k_proj_weight, layer.in_proj_bias, keys_first, kept * o.head_key_width,
                                  o.head_key_width, row_of(key, b, j));
      values.push_back(projected(layer.v_proj_weight, layer.in_proj_bias, values_first, kept * o.head_value_width,
                                 o.head_value_width, row_of(value, b, j)));
      double score = 0;
      for (std::int64_t e = 0; e < E; ++e) {
        double inside = 0;
        for (std::size_t c = 0; c < q.size(); ++c) {
          inside += at(W_q, o.head_query_width, h * E + e, static_cast<std::int64_t>(c)) * q[c];
        }
        for (std::size_t c = 0; c < k.size(); ++c) {
          inside += at(W_k, o.head_key_width, h * E + e, static_cast<std::int64_t>(c)) * k[c];
        }
        score += at(w, E, h, e) * std::tanh(inside);
      }
      exponentials.push_back(std::exp(score));
      sum += exponentials.back();
    }
    for (std::size_t c = 0; c < static_cast<std::size_t>(o.head_value_width); ++c) {
      double pooled = 0;
      for (std::size_t j = 0; j < values.size(); ++j) pooled += exponentials[j] / sum * values[j][c];
      heads.push_back(pooled);
    }
  }
  return projected(layer.out_proj.weight, layer.out_proj.bias, 0, 0, o.output_width, heads);
}

TEST(MultiHeadAttention, WithAdditiveScoresIsTheFormulaOfTheTheory) {
  nn::Init init(2, Dtype::float64);
  const nn::MultiHeadOptions widths{.query_width = 5,
                                    .key_width = 4,
                                    .value_width = 3,
                                    .heads = 4,
                                    .key_heads = 2,
                                    .head_query_width = 3,
                                    .head_key_width = 2,
                                    .head_value_width = 6,
                                    .output_width = 7,
                                    .score = additive({}, {}, {}),
                                    .hidden_width = 9};
  const nn::MultiHeadAttention layer = stirred(nn::MultiHeadAttention(widths, init));
  const Variable query(random_tensor({2, 3, 5}, 1, Dtype::float64)), key(random_tensor({2, 6, 4}, 2, Dtype::float64));
  const Variable value(random_tensor({2, 6, 3}, 3, Dtype::float64));
  const Tensor lens = Tensor::of<std::int32_t>({6, 2}, {2});
  const Variable y = layer(query, key, value, nn::eval, {.mask = lengths(lens)});
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const Numbers right = naive(layer, query, key, value, b, i, b == 0 ? 6 : 2), is = row_of(y, b, i);
      for (std::size_t c = 0; c < right.size(); ++c) EXPECT_NEAR(is[c], right[c], 1e-13) << b << ", " << i << ", " << c;
    }
  }
}

// Keys and values of a layer with grouped heads, repeated, in a layer without.
TEST(MultiHeadAttention, WithGroupedHeadsIsThatWithRepeatedHeads) {
  nn::Init init(2, Dtype::float64);
  const nn::MultiHeadAttention grouped =
      stirred(nn::MultiHeadAttention({.query_width = 8, .heads = 4, .key_heads = 2}, init));
  nn::MultiHeadAttention repeated({.query_width = 8, .heads = 4}, init);
  repeated.out_proj = grouped.out_proj;
  const auto repeat = [](const Variable& whole, std::int64_t q) {
    std::vector<Variable> parts = {slice(whole, 0, 0, q)};
    for (const std::int64_t first : {q, q + 4}) {
      for (const std::int64_t head : {0, 1}) {
        for (int twice = 0; twice < 2; ++twice) parts.push_back(slice(whole, 0, first + 2 * head, 2));
      }
    }
    return concat(parts, 0);
  };
  repeated.in_proj_weight = repeat(grouped.in_proj_weight, 8);
  repeated.in_proj_bias = repeat(grouped.in_proj_bias, 8);
  const Variable x(random_tensor({2, 5, 8}, 1, Dtype::float64));
  const Numbers a = numbers_of(grouped(x, nn::eval)), b = numbers_of(repeated(x, nn::eval));
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-14);
}

TEST(MultiHeadAttention, GivesTheSameHoweverItsProjectionsArePutTogether) {
  for (const Score& score : {scaled_dot(), additive({}, {}, {}), gaussian(2), bilinear({})}) {
    nn::Init init(2);
    const nn::MultiHeadAttention layer =
        stirred(nn::MultiHeadAttention({.query_width = 24, .heads = 3, .score = score}, init));
    const Variable x(random_tensor({2, 20, 24}, 1));
    const Variable again(Tensor::copy_of(x.value())), once_more(Tensor::copy_of(x.value()));
    const AttendOptions options{.mask = causal()};
    const Variable y = layer(x, nn::eval, options);
    EXPECT_TRUE(same_bits(layer(x, again, again, nn::eval, options).value(), y.value()));
    EXPECT_TRUE(same_bits(layer(x, again, once_more, nn::eval, options).value(), y.value()));
    const double allowed = 64 * 0x1p-24 * largest_magnitude(y.value());
    const Variable asked[] = {layer(x, layer.prepare(x, x), nn::eval, options),
                              layer(x, layer.prepare(x, again), nn::eval, options)};
    for (const Variable& other : asked) {
      const Numbers a = numbers_of(other), b = numbers_of(y);
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], allowed);
    }
  }
}

TEST(MultiHeadAttention, StepByStepIsOneCausalPass) {
  for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
    for (const Score& score : {scaled_dot(), additive({}, {}, {}), gaussian(2), cosine()}) {
      for (const std::int64_t key_width : {0, 12}) {
        nn::Init init(2, dtype);
        nn::MultiHeadOptions widths{.query_width = 12, .heads = 4, .key_heads = 2, .score = score};
        widths.key_width = key_width;
        const nn::MultiHeadAttention layer = stirred(nn::MultiHeadAttention(widths, init));
        const Variable x(random_tensor({3, 9, 12}, 1, dtype));
        const Numbers whole = numbers_of(layer(x, nn::eval, {.mask = causal()}));
        Cache cache = layer.make_cache(3, {.capacity = 2});
        const double epsilon = dtype == Dtype::float64 ? 0x1p-53 : 0x1p-24;
        std::int64_t first = 0;
        for (const std::int64_t count : {4, 1, 1, 3}) {
          const Variable y = layer.step(slice(x, 1, first, count), cache);
          EXPECT_FALSE(y.needs_grad());
          for (std::int64_t b = 0; b < 3; ++b) {
            for (std::int64_t t = 0; t < count; ++t) {
              const Numbers is = row_of(y, b, t);
              for (std::size_t c = 0; c < is.size(); ++c) {
                ASSERT_NEAR(is[c], whole[static_cast<std::size_t>((b * 9 + first + t) * 12) + c], 256 * epsilon);
              }
            }
          }
          first += count;
        }
      }
    }
  }
}

TEST(MultiHeadAttention, GivesWeightsOfEveryHeadThatSumToOne) {
  nn::Init init(2, Dtype::float64);
  const nn::MultiHeadAttention layer({.query_width = 12, .heads = 3, .dropout = 0.5}, init);
  const Variable x(random_tensor({2, 7, 12}, 1, Dtype::float64));
  const nn::MultiHeadAttended y = layer.with_weights(x, x, x, nn::train(1), {.mask = causal()});
  EXPECT_TRUE(same_bits(y.out.value(), layer(x, nn::train(1), {.mask = causal()}).value()));
  ASSERT_EQ(y.weights.shape(), (Shape{2, 3, 7, 7}));
  const auto weights = y.weights.values<double>();
  for (std::size_t row = 0; row < 2 * 3 * 7; ++row) {
    double sum = 0;
    for (std::size_t j = 0; j < 7; ++j) {
      sum += weights[row * 7 + j];
      if (j > row % 7) {
        EXPECT_EQ(weights[row * 7 + j], 0);
      }
    }
    EXPECT_NEAR(sum, 1, 1e-14);
  }
}

TEST(MultiHeadAttention, DropsByTheSeedAndOnlyInTraining) {
  nn::Init init(2);
  const nn::MultiHeadAttention layer({.query_width = 12, .heads = 3, .dropout = 0.5}, init);
  nn::MultiHeadAttention other = layer;  // the same parameters in another place of a model
  other.stream = init.next();
  nn::MultiHeadAttention without = layer;
  without.widths.dropout = 0;
  const Variable x(random_tensor({2, 7, 12}, 1));
  const Variable y = layer(x, nn::train(1));
  EXPECT_TRUE(same_bits(layer(x, nn::train(1)).value(), y.value()));
  EXPECT_FALSE(same_bits(layer(x, nn::train(2)).value(), y.value()));
  EXPECT_FALSE(same_bits(other(x, nn::train(1)).value(), y.value()));
  EXPECT_TRUE(same_bits(layer(x, nn::eval).value(), without(x, nn::train(1)).value()));
}

TEST(MultiHeadAttention, NamesItsParametersAsPyTorch) {
  nn::Init init(2);
  const auto names = [](const nn::Parameters& list) {
    std::vector<std::string> all;
    for (const NamedParameter& named : list) all.push_back(named.name);
    return all;
  };
  EXPECT_EQ(names(nn::MultiHeadAttention({.query_width = 4, .heads = 2}, init).parameters("a.")),
            (std::vector<std::string>{"a.in_proj_weight", "a.in_proj_bias", "a.out_proj.weight", "a.out_proj.bias"}));
  EXPECT_EQ(names(nn::MultiHeadAttention({.query_width = 4, .key_width = 3, .bias = false}, init).parameters()),
            (std::vector<std::string>{"q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"}));
  EXPECT_EQ(
      names(
          nn::MultiHeadAttention({.query_width = 4, .bias = false, .score = additive({}, {}, {})}, init).parameters()),
      (std::vector<std::string>{"in_proj_weight", "out_proj.weight", "score.query_weights", "score.key_weights",
                                "score.hidden_weights"}));
}

TEST(MultiHeadAttention, SaysWhatIsWrong) {
  nn::Init init(2);
  const auto refused = [&](const nn::MultiHeadOptions& widths, std::initializer_list<std::string> parts) {
    expect_error<OptionError>([&] { nn::MultiHeadAttention(widths, init); }, parts);
  };
  refused({}, {"MultiHeadAttention", "query_width must be said"});
  refused({.query_width = 8, .heads = 3}, {"MultiHeadAttention", "divide query_width", "3", "8"});
  refused({.query_width = 8, .heads = 4, .key_heads = 3}, {"key_heads must divide heads", "3 and 4"});
  refused({.query_width = 8, .heads = 0}, {"key_heads must divide heads", "0 and 0"});
  refused({.query_width = 8, .heads = -2}, {"heads must not be below 0", "-2"});
  refused({.query_width = 8, .heads = 2, .head_key_width = 3}, {"of one width", "4 and 3"});
  refused({.query_width = 8, .heads = 2, .dropout = 1}, {"dropout", "below 1"});
  const nn::MultiHeadAttention layer({.query_width = 4, .heads = 2}, init);
  const Variable x(random_tensor({2, 3, 4}, 1));
  expect_error<OptionError>([&] { layer(x, nn::eval, {.score = cosine()}); }, {"MultiHeadAttention", "score"});
  expect_error<OptionError>([&] { layer(x, nn::eval, {.dropout = 0.1}); }, {"MultiHeadAttention", "dropout"});
  expect_error<OptionError>([&] { layer(x, nn::eval, {.want_weights = true}); }, {"attend", "on the tape"});
  expect_error<ShapeError>([&] { layer(Variable(Tensor({3, 4})), nn::eval); }, {"attend_heads", "[3, 12]"});
  expect_error<ShapeError>([&] { layer(Variable(Tensor({2, 3, 5})), nn::eval); }, {"linear", "[2, 3, 5]"});
  expect_error<ShapeError>([&] { layer(x, Variable(Tensor({1, 3, 4})), x, nn::eval); }, {"attend", "[1,"});
}

TEST(Layers, SayWhatIsWrong) {
  nn::Init init(2);
  expect_error<OptionError>([&] { nn::Linear(-1, 2, init); }, {"Linear", "in", "-1"});
  expect_error<OptionError>([&] { nn::Embedding(3, 2, init, {.padding = 3}); }, {"Embedding", "row 3", "among 3"});
  expect_error<OptionError>([&] { nn::Dropout(1, init); }, {"Dropout", "below 1"});
  expect_error<OptionError>([&] { nn::Gru(3, 2, init, {.layers = 0}); }, {"Gru", "layer", "0"});
  expect_error<OptionError>([&] { nn::Gru(3, 2, init, {.dropout = -1}); }, {"Gru", "dropout"});
  expect_error<OptionError>([&] { nn::AdditiveAttention(3, 2, -4, init); },
                            {"AdditiveAttention", "hidden_width", "-4"});
  expect_error<ShapeError>([&] { nn::LayerNorm(3, init)(Variable(Tensor({2, 4}))); }, {"LayerNorm", "3", "[2, 4]"});
  expect_error<ShapeError>([&] { nn::LayerNorm(3, init, {.affine = false})(Variable(Tensor({2, 4}))); }, {"LayerNorm"});
}

TEST(Dropout, OfTwoLayersWithOneSeedIsNotTheSame) {
  nn::Init init(2);
  const nn::Dropout a(0.5, init), b(0.5, init);
  const Variable x(random_tensor({100}, 1));
  EXPECT_TRUE(same_bits(a(x, nn::train(1)).value(), a(x, nn::train(1)).value()));
  EXPECT_FALSE(same_bits(a(x, nn::train(1)).value(), b(x, nn::train(1)).value()));
  EXPECT_TRUE(same_bits(a(x, nn::eval).value(), x.value()));
}

}  // namespace
}  // namespace qkv::test
