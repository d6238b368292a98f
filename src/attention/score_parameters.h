// attention/score_parameters.h: what a score carries, checked and in the dtype of the computation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <qkv/score.h>
#include <qkv/tensor.h>

#include "base/function_ref.h"

namespace qkv {

// Arrays have the heads as their first axis: 1, shared, or H.
struct ScoreParameters {
  Tensor matrix;                      // bilinear: [heads, Dq, Dk]
  Tensor query_weights, key_weights;  // additive: [heads, E, Dq], [heads, E, Dk]
  Tensor hidden;                      // additive: [heads, E]
  // Kernels: 1 / sigma and 1 / sigma^2, [heads, 1] or, by coordinate, [heads, D]; rounded once, so that a distance of
  // exactly sigma is one of 1.
  Tensor inverse_bandwidths, inverse_squares;
  std::int64_t heads = 1;      // H where any of them has one per head
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

std::string_view name_of(Score::Kind kind);  // "scaled_dot"

// What a score is used for: what its parameters must fit, and what is said where they do not.
struct ScoreUse {
  struct Queries {
    std::int64_t H, Dq;
  };
  const char* operation;
  std::int64_t Hk, Dk;
  std::optional<Queries> queries;     // absent as long as nobody asks
  FunctionRef<std::string()> shapes;  // "q [..], k [..], v [..]"; called only where something is refused
};

// Looks at shapes and dtypes, reads no element. Throws ShapeError, OptionError, DtypeError naming operation and score.
void check_parameters(const Score& score, Dtype compute, const ScoreUse& use);

// Checks all, the elements too.
ScoreParameters resolve_parameters(const Score& score, Dtype compute, const ScoreUse& use);

}  // namespace qkv
