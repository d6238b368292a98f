// attention/projection_gradients.h: the way back through projections, x' = W x.
#pragma once

#include <cstdint>

#include <qkv/tensor.h>

#include "attention/score_parameters.h"

namespace qkv {

// Adds W^T dx' to dx and dx'^T x to dW, for a W that heads share or one for each. dx' is dense, and several of its
// heads may be made of one of x. Rows of x that have no gradient are not read.
template <class T>
void project_back(const View& x, const View& dx_made, const Tensor& W, const MutableView& dx, Tensor* dW, int threads);

// additive: from gradients of the keys' projections to those of keys and of Wk.
struct ProjectedKeys {
  View k;             // [B, Hk, Tk, Dk]
  View dprojections;  // [B, heads, Tk, E]
  const ScoreParameters& parameters;
  MutableView dk;        // added to; absent: not wanted
  Tensor* dkey_weights;  // added to; null: not wanted
  int threads;
};
void project_keys_back(const ProjectedKeys& keys);

}  // namespace qkv
