// nn/gradients_test.cpp: every layer's gradients against differences, in float64.
#include <gtest/gtest.h>

#include "nn/layers.h"

namespace qkv::test {
namespace {

using Inputs = std::vector<Variable>;

class LayerGradients : public testing::Test {
 protected:
  nn::Init init_{5, Dtype::float64};
  const Tensor lens_ = Tensor::of<std::int64_t>({2, 4}, {2});
};

TEST_F(LayerGradients, Linear) {
  expect_gradients<nn::Linear>(nn::Linear(3, 2, init_), {{2, 2, 3}},
                               [](const nn::Linear& layer, const Inputs& x) { return layer(x[0]); });
}

TEST_F(LayerGradients, Embedding) {
  const Tensor ids = Tensor::of<std::int64_t>({4, 0, 4, 2}, {2, 2});
  expect_gradients<nn::Embedding>(nn::Embedding(5, 3, init_), {},
                                  [&](const nn::Embedding& layer, const Inputs&) { return layer(ids); });
}

TEST_F(LayerGradients, Dropout) {
  expect_gradients<nn::Dropout>(nn::Dropout(0.4, init_), {{4, 5}},
                                [](const nn::Dropout& layer, const Inputs& x) { return layer(x[0], nn::train(3)); });
}

TEST_F(LayerGradients, LayerNorm) {
  expect_gradients<nn::LayerNorm>(stirred(nn::LayerNorm(5, init_)), {{2, 2, 5}},
                                  [](const nn::LayerNorm& layer, const Inputs& x) { return layer(x[0]); });
}

TEST_F(LayerGradients, GruOfTwoLayersInBothDirectionsWithLengthsAndDropout) {
  expect_gradients<nn::Gru>(nn::Gru(3, 2, init_, {.layers = 2, .both_directions = true, .dropout = 0.3}),
                            {{2, 4, 3}, {4, 2, 2}}, [&](const nn::Gru& layer, const Inputs& x) {
                              return layer(x[0], nn::train(2), {.h0 = x[1], .lengths = lens_}).all;
                            });
}

TEST_F(LayerGradients, DotProductAttention) {
  expect_gradients<nn::DotProductAttention>(nn::DotProductAttention(init_, {.dropout = 0.3}),
                                            {{2, 3, 4}, {2, 4, 4}, {2, 4, 3}},
                                            [&](const nn::DotProductAttention& layer, const Inputs& x) {
                                              return layer(x[0], x[1], x[2], nn::train(1), {.mask = lengths(lens_)});
                                            });
}

TEST_F(LayerGradients, AdditiveAttention) {
  for (const bool prepared : {false, true}) {
    expect_gradients<nn::AdditiveAttention>(
        nn::AdditiveAttention(4, 3, 5, init_, {.dropout = 0.3}), {{2, 3, 4}, {2, 4, 3}, {2, 4, 2}},
        [&](const nn::AdditiveAttention& layer, const Inputs& x) {
          const AttendOptions options{.mask = lengths(lens_)};
          if (prepared) return layer(x[0], layer.prepare(x[1], x[2], lens_), nn::train(1), options);
          return layer(x[0], x[1], x[2], nn::train(1), options);
        });
  }
}

// Every score, in every way that projections are put together, heads that share keys, and widths that are free.
class MultiHeadGradients : public LayerGradients {
 protected:
  void expect_all(nn::MultiHeadOptions widths) {
    using Layer = nn::MultiHeadAttention;
    widths.dropout = 0.2;
    const Layer layer = stirred(Layer(widths, init_));
    const auto options = [&] { return AttendOptions{.mask = lengths(lens_)}; };
    const Shape query{2, 3, layer.widths.query_width}, key{2, 4, layer.widths.key_width};
    const Shape value{2, 4, layer.widths.value_width};
    expect_gradients<Layer>(layer, {query, key, value}, [&](const Layer& with, const Inputs& x) {
      return with(x[0], x[1], x[2], nn::train(1), options());
    });
    expect_gradients<Layer>(layer, {query, key, value}, [&](const Layer& with, const Inputs& x) {
      const nn::PreparedHeads keys = with.prepare(x[1], x[2], lens_);
      return with(x[0], keys, nn::train(1), options()) + with(2 * x[0], keys, nn::train(2), options());
    });
    if (!layer.in_proj_weight) return;
    expect_gradients<Layer>(layer, {key},
                            [&](const Layer& with, const Inputs& x) { return with(x[0], nn::train(1), options()); });
    expect_gradients<Layer>(layer, {query, key}, [&](const Layer& with, const Inputs& x) {
      return with(x[0], x[1], x[1], nn::train(1), options());
    });
    expect_gradients<Layer>(layer, {query, key}, [&](const Layer& with, const Inputs& x) {
      const nn::PreparedHeads keys = with.prepare(x[1], x[1], lens_);
      return with(x[0], keys, nn::train(1), options()) + with(2 * x[0], keys, nn::train(2), options());
    });
  }
};

TEST_F(MultiHeadGradients, ScaledDot) {
  expect_all({.query_width = 4, .heads = 2});
  expect_all({.query_width = 4, .heads = 2, .key_heads = 1, .bias = false});
}
TEST_F(MultiHeadGradients, Additive) {
  expect_all({.query_width = 4, .heads = 2, .score = additive({}, {}, {}), .hidden_width = 3});
  expect_all({.query_width = 4, .heads = 2, .key_heads = 1, .score = additive({}, {}, {}), .shared_score = true});
}
TEST_F(MultiHeadGradients, Bilinear) {
  expect_all({.query_width = 4, .heads = 2, .head_query_width = 2, .head_key_width = 3, .score = bilinear({})});
  expect_all({.query_width = 4, .heads = 2, .key_heads = 1, .score = bilinear({}), .shared_score = true});
}
TEST_F(MultiHeadGradients, Gaussian) {
  expect_all({.query_width = 4, .heads = 2, .score = gaussian(1.5)});
  expect_all({.query_width = 4, .heads = 2, .key_heads = 1, .score = gaussian(1.5), .shared_score = true});
}
TEST_F(MultiHeadGradients, CosineAndDot) {
  expect_all({.query_width = 4, .heads = 2, .score = cosine()});
  expect_all({.query_width = 4, .heads = 2, .score = dot()});
}
TEST_F(MultiHeadGradients, WidthsThatAreFree) {
  expect_all({.query_width = 4,
              .key_width = 3,
              .value_width = 5,
              .heads = 2,
              .head_query_width = 3,
              .head_key_width = 2,
              .head_value_width = 4,
              .output_width = 3,
              .score = additive({}, {}, {})});
  expect_all({.query_width = 3, .heads = 2, .head_query_width = 4, .head_value_width = 1, .output_width = 5});
}

}  // namespace
}  // namespace qkv::test
