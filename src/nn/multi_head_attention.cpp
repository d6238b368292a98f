// nn/multi_head_attention.cpp: projections of all heads, attention on views of them, and one more projection.
#include <qkv/error.h>
#include <qkv/nn.h>

#include "base/message.h"
#include "nn/check.h"
#include "nn/head_score.h"
#include "nn/parameters.h"

namespace qkv::nn {
namespace {

constexpr const char* layer = "MultiHeadAttention";

// All that is 0 gets what it stands for.
MultiHeadOptions said(MultiHeadOptions o) {
  require_sizes(layer, {{"query_width", o.query_width},
                        {"key_width", o.key_width},
                        {"value_width", o.value_width},
                        {"heads", o.heads},
                        {"key_heads", o.key_heads},
                        {"head_query_width", o.head_query_width},
                        {"head_key_width", o.head_key_width},
                        {"head_value_width", o.head_value_width},
                        {"output_width", o.output_width},
                        {"hidden_width", o.hidden_width}});
  require_probability(layer, o.dropout);
  if (o.query_width == 0) throw OptionError(message(layer, ": query_width must be said"));
  const auto stands_for = [](std::int64_t& option, std::int64_t size) {
    if (option == 0) option = size;
  };
  stands_for(o.key_heads, o.heads);
  if (o.heads == 0 || o.heads % o.key_heads != 0) {
    throw OptionError(
        message(layer, ": key_heads must divide heads, and there are ", o.key_heads, " and ", o.heads, " of them"));
  }
  if (o.head_query_width == 0 && o.query_width % o.heads != 0) {
    throw OptionError(message(layer, ": heads must divide query_width where head_query_width is not said; they are ",
                              o.heads, " and ", o.query_width));
  }
  stands_for(o.key_width, o.query_width);
  stands_for(o.value_width, o.query_width);
  stands_for(o.head_query_width, o.query_width / o.heads);
  stands_for(o.head_key_width, o.head_query_width);
  stands_for(o.head_value_width, o.head_query_width);
  stands_for(o.output_width, o.query_width);
  stands_for(o.hidden_width, o.head_key_width);
  const bool free = o.score.kind == Score::Kind::bilinear || o.score.kind == Score::Kind::additive;
  if (!free && o.head_query_width != o.head_key_width) {
    throw OptionError(message(layer,
                              ": queries and keys of a head must be of one width unless the score is bilinear "
                              "or additive; they are ",
                              o.head_query_width, " and ", o.head_key_width, " wide"));
  }
  return o;
}

// How many columns the projections have.
struct Columns {
  std::int64_t q, k, v;
  explicit Columns(const MultiHeadOptions& o)
      : q(o.heads * o.head_query_width), k(o.key_heads * o.head_key_width), v(o.key_heads * o.head_value_width) {}
  std::int64_t all() const { return q + k + v; }
};

HeadLayout layout_of(const MultiHeadOptions& o) {
  return {o.heads, o.key_heads, o.head_query_width, o.head_key_width, o.head_value_width};
}

// The weights and biases of projections; those that are made by one product are one.
struct Projection {
  Variable weight, bias;
  Variable operator()(const Variable& x) const { return linear(x, weight, bias); }
};

// In parts of so many columns.
std::vector<Projection> parts_of(const MultiHeadAttention& mha, const std::vector<std::int64_t>& counts) {
  std::vector<Projection> parts(counts.size());
  const auto give = [&](const Variable& whole, Variable Projection::*member) {
    if (!whole) return;
    const std::vector<Variable> pieces = split(whole, 0, counts);
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].*member = pieces[i];
  };
  give(mha.in_proj_weight, &Projection::weight);
  give(mha.in_proj_bias, &Projection::bias);
  if (counts.size() == 3 && !mha.in_proj_weight) {
    parts[0].weight = mha.q_proj_weight;
    parts[1].weight = mha.k_proj_weight;
    parts[2].weight = mha.v_proj_weight;
  }
  return parts;
}

// Whether one product makes keys and values.
bool together(const MultiHeadAttention& mha, const Variable& key, const Variable& value) {
  return mha.in_proj_weight && key.is_same_as(value);
}

// Of queries, and of keys and values together or of each.
std::vector<Projection> projections_for(const MultiHeadAttention& mha, const Variable& key, const Variable& value) {
  const Columns columns(mha.widths);
  return together(mha, key, value) ? parts_of(mha, {columns.q, columns.k + columns.v})
                                   : parts_of(mha, {columns.q, columns.k, columns.v});
}

void project_keys(const std::vector<Projection>& parts, const Variable& key, const Variable& value,
                  AttendVariables& to) {
  to.k = parts[1](key);
  if (parts.size() == 3) to.v = parts[2](value);
}

// Queries, keys and values of all heads, as attend_heads takes them.
AttendVariables projected(const MultiHeadAttention& mha, const Variable& query, const Variable& key,
                          const Variable& value) {
  AttendVariables to;
  if (together(mha, key, value) && query.is_same_as(key)) {
    to.q = linear(query, mha.in_proj_weight, mha.in_proj_bias);
  } else {
    const std::vector<Projection> parts = projections_for(mha, key, value);
    to.q = parts[0](query);
    project_keys(parts, key, value, to);
  }
  put_score(mha.score, to);
  return to;
}

View heads_of(const View& columns, std::int64_t first, std::int64_t heads, std::int64_t width) {
  return columns.slice(2, first, heads * width).split(2, heads).swapped(1, 2);
}

View query_heads(const MultiHeadAttention& mha, const AttendVariables& x) {
  return heads_of(x.q.value(), 0, mha.widths.heads, mha.widths.head_query_width);
}

View key_heads(const MultiHeadAttention& mha, const AttendVariables& x) {
  const std::int64_t first = x.k ? 0 : Columns(mha.widths).q;
  return heads_of(x.k ? x.k.value() : x.q.value(), first, mha.widths.key_heads, mha.widths.head_key_width);
}

AttendOptions asked(const MultiHeadAttention& mha, const AttendOptions& options, const Mode& mode) {
  AttendOptions with = with_layer(layer, options, mha.widths.dropout, mode, mha.stream);
  with.score = mha.score.kind;
  return with;
}

// Of queries and keys that are projected already.
Tensor weights_of(const MultiHeadAttention& mha, const AttendVariables& x, AttendOptions options) {
  const View k = key_heads(mha, x);
  options.score = mha.score.score();
  options.want_weights = true;
  options.want_lse = options.want_entropy = options.training = false;
  return attend(query_heads(mha, x), k, k.slice(3, 0, 0), options).weights;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadOptions& options, Init& init)
    : widths(said(options)),
      out_proj(widths.heads * widths.head_value_width, widths.output_width, init, {.bias = widths.bias}),
      score(make_head_score(widths, init)),
      stream(init.next()) {
  const Columns columns(widths);
  if (widths.key_width == widths.query_width && widths.value_width == widths.query_width) {
    in_proj_weight = init.xavier_uniform({columns.all(), widths.query_width});
  } else {
    q_proj_weight = init.xavier_uniform({columns.q, widths.query_width});
    k_proj_weight = init.xavier_uniform({columns.k, widths.key_width});
    v_proj_weight = init.xavier_uniform({columns.v, widths.value_width});
  }
  if (widths.bias) {
    in_proj_bias = init.zeros({columns.all()});
    out_proj.bias = init.zeros({widths.output_width});
  }
}

Variable MultiHeadAttention::operator()(const Variable& query, const Variable& key, const Variable& value,
                                        const Mode& mode, const AttendOptions& options) const {
  const AttendOptions with = asked(*this, options, mode);
  return out_proj(attend_heads(projected(*this, query, key, value), layout_of(widths), with).out);
}

MultiHeadAttended MultiHeadAttention::with_weights(const Variable& query, const Variable& key, const Variable& value,
                                                   const Mode& mode, const AttendOptions& options) const {
  const AttendOptions with = asked(*this, options, mode);
  const AttendVariables x = projected(*this, query, key, value);
  return {out_proj(attend_heads(x, layout_of(widths), with).out), weights_of(*this, x, with)};
}

PreparedHeads MultiHeadAttention::prepare(const Variable& key, const Variable& value, View valid_lens) const {
  AttendVariables x;
  const std::vector<Projection> parts = projections_for(*this, key, value);
  project_keys(parts, key, value, x);
  put_score(score, x);
  return {prepare_heads(x, layout_of(widths), score.kind, valid_lens), parts[0].weight, parts[0].bias};
}

Variable MultiHeadAttention::operator()(const Variable& query, const PreparedHeads& keys, const Mode& mode,
                                        const AttendOptions& options) const {
  AttendVariables ask;
  ask.q = linear(query, keys.query_weight, keys.query_bias);
  return out_proj(attend(ask, keys.keys, with_layer(layer, options, widths.dropout, mode, stream)).out);
}

Cache MultiHeadAttention::make_cache(std::int64_t B, CacheOptions cache) const {
  cache.score = score.score();
  if (out_proj.weight.dtype() == Dtype::float64) cache.dtype = Dtype::float64;
  return Cache(B, widths.key_heads, widths.head_key_width, widths.head_value_width, cache);
}

Variable MultiHeadAttention::step(const Variable& x, Cache& cache, const AttendOptions& options) const {
  const NoGrad no_grad;
  AttendOptions with = with_layer(layer, options, 0, eval, stream);
  with.mask &= causal(bottom_right());
  const Columns columns(widths);
  const AttendVariables all = projected(*this, x, x, x);
  if (x.rank() != 3) throw ShapeError(message(layer, ": x must be [B, T, d_q], and is ", x.shape().text()));
  const View values = all.v ? all.v.value() : all.q.value();
  const View v = heads_of(values, all.v ? 0 : columns.q + columns.k, widths.key_heads, widths.head_value_width);
  Tensor answers = Tensor::uninitialized({x.extent(0), x.extent(1), widths.heads * widths.head_value_width}, x.dtype());
  cache.append(key_heads(*this, all), v);
  attend_into(query_heads(*this, all), cache, {answers.view().split(2, widths.heads).swapped(1, 2)}, with);
  return out_proj(Variable(std::move(answers)));
}

Parameters MultiHeadAttention::parameters(const std::string& prefix) const {
  return join({listed(prefix, {{"in_proj_weight", in_proj_weight},
                               {"q_proj_weight", q_proj_weight},
                               {"k_proj_weight", k_proj_weight},
                               {"v_proj_weight", v_proj_weight},
                               {"in_proj_bias", in_proj_bias}}),
               out_proj.parameters(prefix + "out_proj."), score.parameters(prefix + "score.")});
}

}  // namespace qkv::nn
