// nn/additive_attention.cpp: attention by w_v^T tanh(W_q q + W_k k).
#include <cmath>

#include <qkv/nn.h>

#include "nn/check.h"
#include "nn/parameters.h"

namespace qkv::nn {
namespace {

constexpr const char* layer = "AdditiveAttention";

// These, and what the score learns.
AttendVariables with_score(const AdditiveAttention& of, AttendVariables variables) {
  variables.query_weights = of.W_q;
  variables.key_weights = of.W_k;
  variables.hidden_weights = reshape(of.w_v, {of.w_v.extent(1)});
  return variables;
}

}  // namespace

AdditiveAttention::AdditiveAttention(std::int64_t query_width, std::int64_t key_width, std::int64_t hidden_width,
                                     Init& init, const AttentionOptions& with)
    : attention(with), stream(init.next()) {
  require_sizes(layer, {{"query_width", query_width}, {"key_width", key_width}, {"hidden_width", hidden_width}});
  require_probability(layer, attention.dropout);
  W_q = init.kaiming_uniform({hidden_width, query_width}, std::sqrt(5.0));
  W_k = init.kaiming_uniform({hidden_width, key_width}, std::sqrt(5.0));
  w_v = init.kaiming_uniform({1, hidden_width}, std::sqrt(5.0));
}

Variable AdditiveAttention::operator()(const Variable& q, const Variable& k, const Variable& v, const Mode& mode,
                                       const AttendOptions& options) const {
  AttendOptions with = with_layer(layer, options, attention.dropout, mode, stream);
  with.score = additive({}, {}, {});
  return attend(with_score(*this, {.q = q, .k = k, .v = v}), with).out;
}

PreparedVariables AdditiveAttention::prepare(const Variable& k, const Variable& v, View valid_lens) const {
  return qkv::prepare(with_score(*this, {.q = {}, .k = k, .v = v}), additive({}, {}, {}), valid_lens);
}

Variable AdditiveAttention::operator()(const Variable& q, const PreparedVariables& keys, const Mode& mode,
                                       const AttendOptions& options) const {
  AttendVariables ask;
  ask.q = q;
  return attend(ask, keys, with_layer(layer, options, attention.dropout, mode, stream)).out;
}

Parameters AdditiveAttention::parameters(const std::string& prefix) const {
  return listed(prefix, {{"W_q.weight", W_q}, {"W_k.weight", W_k}, {"w_v.weight", w_v}});
}

}  // namespace qkv::nn
