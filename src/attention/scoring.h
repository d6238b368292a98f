// attention/scoring.h: the queries and keys that the loop compares, and by which kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <qkv/tensor.h>

#include "attention/key_form.h"
#include "attention/problem.h"

namespace qkv {

// One way to score.
struct ScoreWay {
  enum class Kind : std::uint8_t { dot, additive, additive_direct, distance, yours };
  Kind kind = Kind::dot;
  View q, k;                   // [B, H, Tq, width], [B, key heads, Tk, width]
  std::int64_t width = 0;      // that are compared
  std::int64_t key_group = 1;  // query heads per key head of k
  double scale = 1;            // of dot
  // additive: what its derivatives by projections lack besides the hidden weights; see kernels::AdditiveGradientArgs.
  int derivative_factor() const { return kind == Kind::additive_direct ? 1 : 4; }
  // Backward: the columns of q and k that gradients are products of; see gradient_forms.h.
  std::int64_t product_width = 0;
};

// The ways of one call: what is as a rule taken, and another for heads where that would not be exact enough. A gaussian
// whose norms cancel badly goes by distances; an additive score whose exponentials would overflow goes by tanh.
struct Scoring {
  ScoreWay usual, exact;
  std::vector<std::uint8_t> needs_exact;  // [B * H]; empty: nobody does
  const ScoreParameters* parameters = nullptr;

  const ScoreWay& way(std::int64_t batch, std::int64_t head, std::int64_t H) const {
    return needs_exact.empty() || needs_exact[static_cast<std::size_t>(batch * H + head)] == 0 ? usual : exact;
  }
  std::int64_t exact_heads() const;
  std::int64_t max_width() const { return std::max(usual.width, exact.width); }
  // In what scores them besides q and k.
  bool heads_differ() const { return parameters->heads > 1 && !parameters->matrix; }
  std::int64_t bytes() const;

  // What the views above may show.
  std::shared_ptr<const KeyForm> form;
  FormTensor queries, projections;
  Tensor centred_queries, centred_keys;  // backward, of distances; see distance_gradients.h
};

// Whether keys have any say.
bool reads_keys(const Problem& problem);

// What the score makes of the queries. `form` is that of problem.k for problem.score.
Scoring make_scoring(const Problem& problem, std::shared_ptr<const KeyForm> form);

// The same from the keys on, of which only those are read that the mask shows.
Scoring make_scoring(const Problem& problem);

}  // namespace qkv
