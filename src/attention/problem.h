// attention/problem.h: one call of attend, checked and brought to rank 4.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <qkv/attend.h>

#include "attention/resolved_mask.h"
#include "attention/weighing.h"
#include "base/random.h"

namespace qkv {

// Dropout of weights; see AttendOptions.
struct Dropping {
  std::uint32_t threshold = 0;  // 0: none
  double factor = 1;
  std::uint64_t seed = 0;
  std::vector<std::int64_t> sequence_ids;  // [B]
};

// A query of a head of a sequence.
struct RowOf {
  std::int64_t batch, head, query;
};

// Where row `at` of a sequence's head starts in an array [B, H, rows, ...].
inline std::int64_t place(const View& view, const RowOf& row, std::int64_t at) {
  return row.batch * view.stride(0) + row.head * view.stride(1) + at * view.stride(2);
}
inline std::int64_t place(const View& view, const RowOf& row) { return place(view, row, row.query); }

// What keys the generator of one row's dropout.
inline std::uint64_t row_key(const Dropping& dropping, const RowOf& row) {
  return random_key(dropping.seed, dropping.sequence_ids[static_cast<std::size_t>(row.batch)], row.head, row.query);
}

struct Problem {
  const char* operation;
  View q, k, v;  // [B, H, Tq, D], [B, Hk, Tk, Dk], [B, Hk, Tk, Dv]
  std::int64_t B, H, Hk, Tq, Tk, D, Dk, Dv;
  std::int64_t group;  // query heads per key head
  Dtype compute;       // float32 or float64
  Dtype out_dtype;
  int rank;  // of the queries, as they were given

  Score score;
  double scale, softcap;
  ResolvedMask mask;
  Weighing weighing;
  Dropping dropping;
  OnEmpty on_empty;
  ScoreStage want_scores;
  bool want_lse, want_weights, want_mass, want_entropy, want_effective, want_partial, want_backward;
  std::int64_t want_top;
  bool want_row_weights;
  std::vector<std::int64_t> want_rows;
  PartialState state_kind;
  int threads;

  // The shape of a result, in the rank of the queries: their axes before the last two, and then these.
  Shape shape(std::initializer_list<std::int64_t> last) const;

  std::string shapes() const;  // of q, k and v as they were given, for messages

  // Something is done to scores between score and weigh, besides exclusion.
  bool edits_scores() const { return softcap != 0 || !mask.edit_by().empty() || !mask.slopes().empty(); }
};

// Throws ShapeError, OptionError, DtypeError naming `operation`. The score's parameters are not looked at.
Problem check(const View& q, const View& k, const View& v, const AttendOptions& options, const char* operation);

// Throws ShapeError: "attend: out of shape [..] must be [..]".
[[noreturn]] void refuse_shape(const View& view, const Shape& shape, const Problem& problem, const char* name);

// The dtype in which these are computed with, together. Throws DtypeError.
struct NamedDtype {
  const char* name;
  Dtype dtype;
};
Dtype compute_dtype(std::initializer_list<NamedDtype> inputs, const char* operation);

// [T, D] and [B, T, D] get their missing axes, of extent 1, in front of T.
View rank4(const View& view);

// An array of problem.shape(...) with the axes in front that the queries' rank lacks: [B, H, and the last ones]. Throws
// ShapeError where it has another shape.
template <class AnyView>
AnyView with_heads(const AnyView& view, std::initializer_list<std::int64_t> last, const Problem& problem,
                   const char* name) {
  const Shape shape = problem.shape(last);
  if (!(view.shape() == shape)) refuse_shape(view, shape, problem, name);
  const int count = static_cast<int>(last.size()), own = view.rank();
  std::vector<std::int64_t> extents = {problem.B, problem.H};
  extents.insert(extents.end(), last);
  Strides strides = {};
  for (int axis = 0; axis < count; ++axis) {
    strides[static_cast<std::size_t>(2 + axis)] = view.stride(own - count + axis);
  }
  if (own > count) strides[0] = view.stride(0);
  if (own == 2 + count) strides[1] = view.stride(1);
  return AnyView(view.data(), view.dtype(), Shape(extents), strides);
}

// Where the results go, at rank 4 (one number a query: rank 3); absent ones were not asked for.
struct Results {
  MutableView out, weights, scores, row_weights, top_weights, top_indices;
  MutableView lse, entropy, effective, state, index, chosen;
  MutableView mass;  // [B, H, Tk]
};

}  // namespace qkv
