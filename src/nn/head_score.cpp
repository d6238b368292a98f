// nn/head_score.cpp: what the score of a multi-head layer learns.
#include "nn/head_score.h"

#include <cmath>

#include "nn/parameters.h"

namespace qkv::nn {
namespace {

// [H, shape], or the shape alone where heads share it.
Shape for_heads(const MultiHeadOptions& widths, std::initializer_list<std::int64_t> shape) {
  if (widths.shared_score) return Shape(shape);
  std::vector<std::int64_t> extents = {widths.heads};
  extents.insert(extents.end(), shape.begin(), shape.end());
  return Shape(extents);
}

Variable within(Init& init, const Shape& shape, double numerator, std::int64_t fans) {
  const double bound = fans > 0 ? std::sqrt(numerator / static_cast<double>(fans)) : 0;
  return init.uniform(shape, -bound, bound);
}

}  // namespace

// bilinear's M is xavier_uniform, additive's weights are as Linear's, head by head.
HeadScore make_head_score(const MultiHeadOptions& widths, Init& init) {
  HeadScore made;
  made.kind = widths.score;
  made.kind.matrix = made.kind.query_weights = made.kind.key_weights = made.kind.hidden_weights =
      made.kind.bandwidths = {};
  const std::int64_t p_q = widths.head_query_width, p_k = widths.head_key_width, E = widths.hidden_width;
  switch (widths.score.kind) {
    case Score::Kind::bilinear:
      made.matrix = within(init, for_heads(widths, {p_q, p_k}), 6, p_q + p_k);
      break;
    case Score::Kind::additive:
      made.query_weights = within(init, for_heads(widths, {E, p_q}), 1, p_q);
      made.key_weights = within(init, for_heads(widths, {E, p_k}), 1, p_k);
      made.hidden_weights = within(init, for_heads(widths, {E}), 1, E);
      break;
    case Score::Kind::gaussian:
    case Score::Kind::laplace:
    case Score::Kind::boxcar:
    case Score::Kind::triangular:
    case Score::Kind::epanechnikov: {
      const double sigma = widths.score.bandwidth;
      made.bandwidths = init.uniform(for_heads(widths, {1}), sigma, sigma);
      break;
    }
    default:
      break;
  }
  return made;
}

Score HeadScore::score() const {
  Score with = kind;
  const auto show = [](View& view, const Variable& variable) {
    if (variable) view = variable.value();
  };
  show(with.matrix, matrix);
  show(with.query_weights, query_weights);
  show(with.key_weights, key_weights);
  show(with.hidden_weights, hidden_weights);
  show(with.bandwidths, bandwidths);
  return with;
}

void put_score(const HeadScore& score, AttendVariables& variables) {
  variables.matrix = score.matrix;
  variables.query_weights = score.query_weights;
  variables.key_weights = score.key_weights;
  variables.hidden_weights = score.hidden_weights;
  variables.bandwidths = score.bandwidths;
}

Parameters HeadScore::parameters(const std::string& prefix) const {
  return listed(prefix, {{"matrix", matrix},
                         {"query_weights", query_weights},
                         {"key_weights", key_weights},
                         {"hidden_weights", hidden_weights},
                         {"bandwidths", bandwidths}});
}

}  // namespace qkv::nn
