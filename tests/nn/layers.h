// nn/layers.h: layers for tests, and what is done to all of their parameters.
#pragma once

#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/nn.h>

#include "support/random.h"

namespace qkv::test {

// Where a layer holds its parameters; those that are absent are left out.
using Members = std::vector<Variable*>;

inline Members present(const Members& all) {
  Members there;
  for (Variable* member : all) {
    if (*member) there.push_back(member);
  }
  return there;
}
inline Members members_of(nn::Linear& layer) { return present({&layer.weight, &layer.bias}); }
inline Members members_of(nn::Embedding& layer) { return {&layer.weight}; }
inline Members members_of(nn::LayerNorm& layer) { return present({&layer.weight, &layer.bias}); }
inline Members members_of(nn::AdditiveAttention& layer) { return {&layer.W_q, &layer.W_k, &layer.w_v}; }
inline Members members_of(nn::DotProductAttention&) { return {}; }
inline Members members_of(nn::Dropout&) { return {}; }
inline Members members_of(nn::Gru& layer) {
  Members all;
  for (GruWeights& set : layer.weights) {
    for (Variable* member : {&set.W_ih, &set.W_hh, &set.b_ih, &set.b_hh}) all.push_back(member);
  }
  return present(all);
}
inline Members members_of(nn::MultiHeadAttention& layer) {
  return present({&layer.in_proj_weight, &layer.q_proj_weight, &layer.k_proj_weight, &layer.v_proj_weight,
                  &layer.in_proj_bias, &layer.out_proj.weight, &layer.out_proj.bias, &layer.score.matrix,
                  &layer.score.query_weights, &layer.score.key_weights, &layer.score.hidden_weights,
                  &layer.score.bandwidths});
}

// No parameter stays 0 or 1, which would hide mistakes: normal numbers are added.
template <class Layer>
Layer stirred(Layer layer, std::uint64_t seed = 11) {
  for (Variable* member : members_of(layer)) {
    const MutableView value = member->mutable_value();
    const Tensor noise = random_tensor(value.shape(), seed++, Dtype::float64, 0.25);
    for (std::int64_t i = 0; i < value.elements(); ++i) {
      const double added = noise.values<double>()[static_cast<std::size_t>(i)];
      if (value.dtype() == Dtype::float64) {
        value.as<double>()[i] += added;
      } else {
        value.as<float>()[i] += static_cast<float>(added);
      }
    }
  }
  return layer;
}

// Gradients of a layer's call by its inputs and all of its parameters against differences. The layer is float64.
template <class Layer>
void expect_gradients(const Layer& layer, const std::vector<Shape>& inputs,
                      const std::function<Variable(const Layer&, const std::vector<Variable>&)>& call) {
  std::vector<Tensor> numbers;
  for (const Shape& shape : inputs) {
    numbers.push_back(random_tensor(shape, 21 + numbers.size(), Dtype::float64, 0.7));
  }
  std::vector<View> all(numbers.begin(), numbers.end());
  Layer copy = layer;
  for (const Variable* member : members_of(copy)) all.push_back(member->value());
  const auto function = [&](const std::vector<Variable>& given) {
    Layer with = layer;
    auto next = given.begin() + static_cast<std::ptrdiff_t>(inputs.size());
    for (Variable* member : members_of(with)) *member = *next++;
    return call(with, given);
  };
  const GradcheckResult result = gradcheck(function, all);
  EXPECT_TRUE(result) << result.message;
}

}  // namespace qkv::test
