// nn/golden_test.cpp: layers filled from PyTorch give PyTorch's outputs and gradients.
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/nn.h>

#include "nn/golden.h"

namespace qkv::test {
namespace {

class LikePyTorch : public testing::TestWithParam<Dtype> {
 protected:
  nn::Init init_{7, GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Dtypes, LikePyTorch, testing::Values(Dtype::float32, Dtype::float64),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

template <class Layer>
void expect_plain(const Golden& golden, const Layer& layer) {
  nn::load(layer.parameters(), golden.file(), "layer.");
  const Variable x = golden.input("x"), y = layer(x);
  golden.expect("out.y", y.value());
  backward(y, golden.upstream("y"));
  golden.expect_gradient("x", x);
  golden.expect_gradients(layer);
}

TEST_P(LikePyTorch, Linear) {
  expect_plain(Golden("linear", GetParam()), nn::Linear(5, 4, init_));
  expect_plain(Golden("linear_without_bias", GetParam()), nn::Linear(5, 4, init_, {.bias = false}));
  expect_plain(Golden("linear_empty_batch", GetParam()), nn::Linear(5, 4, init_));
}

TEST_P(LikePyTorch, LayerNorm) {
  expect_plain(Golden("layer_norm", GetParam()), nn::LayerNorm(6, init_));
  expect_plain(Golden("layer_norm_empty_batch", GetParam()), nn::LayerNorm(6, init_));
}

TEST_P(LikePyTorch, EmbeddingWithPadding) {
  for (const auto& [name, used] : {std::pair("embedding", std::vector<double>{0, 1, 5, 6}),
                                   std::pair("embedding_empty_batch", std::vector<double>{})}) {
    const Golden golden(name, GetParam());
    const nn::Embedding layer(7, 3, init_, {.padding = 2});
    nn::load(layer.parameters(), golden.file(), "layer.");
    const Variable y = layer(golden.view("in.x"));
    golden.expect("out.y", y.value());
    backward(y, golden.upstream("y"));
    golden.expect_gradients(layer);
    const View rows = layer.weight.grad_rows();
    EXPECT_EQ(reference::elements<double>(Tensor::copy_of(rows)), used) << name;
  }
}

struct GruCase {
  const char* name;
  std::int64_t hidden;
  nn::GruLayerOptions options;
};

TEST_P(LikePyTorch, Gru) {
  for (const GruCase& row :
       {GruCase{"gru", 4, {}}, GruCase{"gru_without_bias", 4, {.bias = false}},
        GruCase{"gru_packed", 4, {.layers = 2, .both_directions = true}}, GruCase{"gru_batch_of_one", 4, {.layers = 2}},
        GruCase{"gru_empty_batch", 4, {.both_directions = true}},
        GruCase{"gru_both_directions", 2, {.both_directions = true}}}) {
    const Golden golden(row.name, GetParam());
    const nn::Gru layer(3, row.hidden, init_, row.options);
    nn::load(layer.parameters(), golden.file(), "layer.");
    const Variable x = golden.input("x");
    nn::GruInput input;
    if (golden.has("in.h0")) input.h0 = golden.input("h0");
    if (golden.has("in.lengths")) input.lengths = golden.view("in.lengths");
    const GruStates y = layer(x, nn::eval, input);
    golden.expect("out.all", y.all.value());
    golden.expect("out.last", y.last.value());
    const Variable all(golden.upstream("all")), last(golden.upstream("last"));
    backward(sum(y.all * all) + sum(y.last * last));
    golden.expect_gradient("x", x);
    if (input.h0) golden.expect_gradient("h0", input.h0);
    golden.expect_gradients(layer);
  }
}

struct HeadsCase {
  const char* name;
  nn::MultiHeadOptions widths;
};

// [B, Tk] seen as [B, 1, 1, Tk].
View for_pairs(const View& keys) {
  return View(keys.data(), keys.dtype(), Shape{keys.extent(0), 1, 1, keys.extent(1)});
}

TEST_P(LikePyTorch, MultiHeadAttention) {
  for (const HeadsCase& row : {
           HeadsCase{"heads_self", {.query_width = 8, .heads = 2}},
           HeadsCase{"heads_without_bias", {.query_width = 8, .heads = 4, .bias = false}},
           HeadsCase{"heads_causal", {.query_width = 8, .heads = 2}},
           HeadsCase{"heads_padding", {.query_width = 8, .heads = 2}},
           HeadsCase{"heads_added_mask", {.query_width = 8, .heads = 2}},
           HeadsCase{"heads_three_inputs", {.query_width = 8, .heads = 2}},
           HeadsCase{"heads_of_widths", {.query_width = 8, .key_width = 6, .value_width = 5, .heads = 2}},
           HeadsCase{"heads_batch_of_one", {.query_width = 6, .heads = 3}},
           HeadsCase{"heads_empty_batch", {.query_width = 6, .heads = 3}},
       }) {
    const Golden golden(row.name, GetParam());
    const nn::MultiHeadAttention layer(row.widths, init_);
    nn::load(layer.parameters(), golden.file(), "layer.");
    const Variable query = golden.input("query");
    const Variable key = golden.has("in.key") ? golden.input("key") : query;
    const Variable value = golden.has("in.value") ? golden.input("value") : key;
    AttendOptions options;
    Tensor added;
    if (golden.has("in.drop_pairs")) options.mask &= drop(golden.view("in.drop_pairs"));
    if (golden.has("in.drop_keys")) options.mask &= drop(for_pairs(golden.view("in.drop_keys")));
    if (golden.has("in.mask_added")) {
      added = golden.numbers("in.mask_added");
      options.mask &= bias(added);
    }
    const nn::MultiHeadAttended y = layer.with_weights(query, key, value, nn::eval, options);
    golden.expect("out.y", y.out.value());
    golden.expect("out.weights", y.weights);
    EXPECT_TRUE(same_bits(layer(query, key, value, nn::eval, options).value(), y.out.value()));
    backward(y.out, golden.upstream("y"));
    golden.expect_gradient("query", query);
    if (!key.is_same_as(query)) golden.expect_gradient("key", key);
    if (!value.is_same_as(key)) golden.expect_gradient("value", value);
    golden.expect_gradients(layer);
    if (golden.has("in.drop_pairs")) {
      const Variable causally = layer(query, nn::eval, {.mask = causal()});
      golden.expect("out.y", causally.value());
    }
  }
}

TEST_P(LikePyTorch, AdditiveAttention) {
  for (const auto& [name, prepared] :
       {std::pair("additive", false), std::pair("additive", true), std::pair("additive_batch_of_one", false),
        std::pair("additive_empty_batch", false), std::pair("additive_empty_batch", true)}) {
    const Golden golden(name, GetParam());
    const nn::AdditiveAttention layer(5, 3, 6, init_);
    nn::load(layer.parameters(), golden.file(), "layer.");
    const View lens = golden.view("in.lengths");
    const Variable q = golden.input("q"), k = golden.input("k"), v = golden.input("v");
    const AttendOptions options{.mask = lengths(lens)};
    const Variable y =
        prepared ? layer(q, layer.prepare(k, v, lens), nn::eval, options) : layer(q, k, v, nn::eval, options);
    golden.expect("out.y", y.value());
    backward(y, golden.upstream("y"));
    golden.expect_gradient("q", q);
    golden.expect_gradient("k", k);
    golden.expect_gradient("v", v);
    golden.expect_gradients(layer);
  }
}

TEST_P(LikePyTorch, DotProductAttention) {
  for (const char* name : {"dot_product", "dot_product_batch_of_one", "dot_product_empty_batch"}) {
    const Golden golden(name, GetParam());
    const nn::DotProductAttention layer(init_);
    const Variable q = golden.input("q"), k = golden.input("k"), v = golden.input("v");
    const Variable y = layer(q, k, v, nn::eval, {.mask = lengths(golden.view("in.lengths"))});
    golden.expect("out.y", y.value());
    backward(y, golden.upstream("y"));
    golden.expect_gradient("q", q);
    golden.expect_gradient("k", k);
    golden.expect_gradient("v", v);
  }
}

// A model: layers in a struct.
struct Tagger {
  nn::Embedding words;
  nn::MultiHeadAttention look;
  nn::LayerNorm norm;
  nn::Gru read;
  nn::Linear decide;

  explicit Tagger(nn::Init& init)
      : words(10, 8, init, {.padding = 0}),
        look({.query_width = 8, .heads = 2}, init),
        norm(8, init),
        read(8, 4, init, {.both_directions = true}),
        decide(8, 3, init) {}

  Variable operator()(const View& ids, const View& lens) const {
    const Variable x = words(ids), y = look(x, nn::eval, {.mask = lengths(lens)});
    return decide(read(norm(x + y), nn::eval).all);
  }
  nn::Parameters parameters() const {
    return nn::join({words.parameters("words."), look.parameters("look."), norm.parameters("norm."),
                     read.parameters("read."), decide.parameters("decide.")});
  }
};

TEST_P(LikePyTorch, AModelOfLayers) {
  const Golden golden("tagger", GetParam());
  const Tagger model(init_);
  nn::load(model.parameters(), golden.file(), "layer.");
  const Tensor lens = Tensor::of<std::int64_t>({6, 5}, {2});
  const Variable y = model(golden.view("in.ids"), lens);
  golden.expect("out.y", y.value());
  backward(y, golden.upstream("y"));
  golden.expect_gradients(model);
}

}  // namespace
}  // namespace qkv::test
