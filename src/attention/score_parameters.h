// attention/score_parameters.h: what a score carries, checked and in the dtype of the computation.
#pragma once

#include <cstdint>

#include <qkv/score.h>
#include <qkv/tensor.h>

namespace qkv {

// Arrays have the heads as their first axis: 1, shared, or H.
struct ScoreParameters {
  Tensor matrix;                      // bilinear: [heads, Dq, Dk]
  Tensor query_weights, key_weights;  // additive: [heads, E, Dq], [heads, E, Dk]
  Tensor hidden;                      // additive: [heads, E]
  // Kernels: 1 / sigma and 1 / sigma^2, [heads, 1] or, by coordinate, [heads, D]; rounded once, so that a distance of
  // exactly sigma is one of 1.
  Tensor inverse_bandwidths, inverse_squares;
  std::int64_t heads = 1;      // H where any of them differs by head
  bool by_coordinate = false;  // bandwidths

  std::int64_t hidden_width() const { return hidden ? hidden.shape()[1] : 0; }
  std::int64_t bytes() const;
};

// The parameters of query head h.
inline View of_head(const Tensor& parameter, std::int64_t h) {
  const View view = parameter;
  const View one = view.slice(0, view.extent(0) == 1 ? 0 : h, 1);
  Strides strides = {};
  std::int64_t extents[Shape::max_rank] = {};
  for (int axis = 1; axis < one.rank(); ++axis) {
    extents[axis - 1] = one.extent(axis);
    strides[static_cast<std::size_t>(axis - 1)] = one.stride(axis);
  }
  return View(one.data(), one.dtype(),
              Shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(one.rank() - 1))), strides);
}

// Checks all but what depends on the queries. Dk: the width of the keys. Throws ShapeError, OptionError, DtypeError
// naming `operation`.
ScoreParameters resolve_parameters(const Score& score, std::int64_t Dk, Dtype compute, const char* operation);

// Checks the rest: the queries' width and heads.
void check_queries(const Score& score, const ScoreParameters& parameters, std::int64_t H, std::int64_t Dq,
                   std::int64_t Dk, const char* operation);

}  // namespace qkv
