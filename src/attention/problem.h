// attention/problem.h: one call of attend, checked and brought to rank 4.
#pragma once

#include <cstdint>

#include <qkv/attend.h>

#include "attention/resolved_mask.h"

namespace qkv {

struct Problem {
  const char* operation;
  View q, k, v;  // [B, H, Tq, D], [B, Hk, Tk, D], [B, Hk, Tk, Dv]
  std::int64_t B, H, Hk, Tq, Tk, D, Dv;
  std::int64_t group;                      // query heads per key head
  Dtype compute;                           // float32 or float64
  Shape out_shape, lse_shape, pair_shape;  // of the results, in the rank of the queries
  Dtype out_dtype;

  double scale, softcap;
  OnEmpty on_empty;
  ScoreStage want_scores;
  bool want_lse, want_weights;
  ResolvedMask mask;
  int threads;
};

// Throws ShapeError, OptionError, DtypeError naming `operation`.
Problem check(const View& q, const View& k, const View& v, const AttendOptions& options, const char* operation);

// Where the results go, at rank 4 (lse at rank 3); absent ones were not asked for.
struct Results {
  MutableView out, lse, weights, scores;
};

}  // namespace qkv
