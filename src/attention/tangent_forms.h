// attention/tangent_forms.h: rows whose products are the rates at which scores change.
#pragma once

#include <qkv/tensor.h>

#include "attention/problem.h"
#include "attention/scoring.h"
#include "attention/visible.h"

namespace qkv {

// left [B, H, Tq, width], right [B, heads, Tk, width]; dense, zeros for keys that nobody sees. With q', k' what a score
// compares (KeyForm) and dots for rates, s' = left . right:
//
//   dot, scaled_dot, cosine, bilinear  [scale q'., scale q'] . [k', k'.]
//   gaussian                           -sum_c f_c (q - k)_c (q. - k.)_c, f = 1 / sigma^2, about a centre c, as
//                                      [f q., f (q - c), -(q - c) f q., 1] . [k - c, k., 1, -(k - c) f k.]
//   constant                           absent: scores do not change
//
// additive's rates are no products: left and right are those of the projections, Wq q. and Wk k.
struct TangentForms {
  Tensor left, right;
};

// dq [B, H, Tq, D] and dk [B, Hk, Tk, Dk] may be absent: zeros. Only rows in `runs` are read of keys.
TangentForms make_tangent_forms(const Problem& problem, const Scoring& scoring, const View& dq, const View& dk,
                                const VisibleRuns& runs);

// A dense copy [B, heads, T, width] as the dtype of the computation, zeros outside of `runs`; null: of all rows. An
// absent view of this shape is zeros.
Tensor seen_rows(const View& view, const Shape& shape, Dtype dtype, const VisibleRuns* runs);

}  // namespace qkv
