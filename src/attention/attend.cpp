// attention/attend.cpp: the public functions of qkv/attend.h.
#include <qkv/attend.h>

#include <algorithm>
#include <string>

#include <qkv/error.h>
#include <qkv/isa.h>

#include "attention/forward.h"
#include "attention/problem.h"
#include "attention/strategy.h"
#include "base/message.h"

namespace qkv {
namespace {

// A result's view as [B, H, Tq, last], with the axes its rank lacks.
MutableView result_view(const MutableView& view, const Shape& shape, Dtype dtype, int last_axes, const Problem& p,
                        const char* name) {
  if (!view) return {};
  if (!(view.shape() == shape)) {
    throw ShapeError(message(p.operation, ": ", name, " of shape ", view.shape().text(), " must be ", shape.text()));
  }
  if (view.dtype() != dtype) {
    throw DtypeError(message(p.operation, ": ", name, " must be ", name_of(dtype), ", not ", name_of(view.dtype())));
  }
  const int own = view.rank(), full = 2 + last_axes;
  Strides strides = {};
  std::int64_t extents[4] = {p.B, p.H, 1, 1};
  for (int axis = 0; axis < last_axes; ++axis) {
    extents[2 + axis] = shape[own - last_axes + axis];
    strides[static_cast<std::size_t>(2 + axis)] = view.stride(own - last_axes + axis);
  }
  if (own > last_axes) strides[0] = view.stride(0);
  if (own == full) strides[1] = view.stride(1);
  return MutableView(view.data(), dtype, Shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(full))),
                     strides);
}

Results checked_results(const Problem& p, const AttendInto& into) {
  if (!into.out) throw ShapeError(message(p.operation, ": out must be given, of shape ", p.out_shape.text()));
  if (static_cast<bool>(into.scores) != (p.want_scores != ScoreStage::none)) {
    throw OptionError(
        message(p.operation, ": into.scores and options.want_scores go together; one is given without the other"));
  }
  return {result_view(into.out, p.out_shape, p.out_dtype, 2, p, "out"),
          result_view(into.lse, p.lse_shape, p.compute, 1, p, "lse"),
          result_view(into.weights, p.pair_shape, p.compute, 2, p, "weights"),
          result_view(into.scores, p.pair_shape, p.compute, 2, p, "scores")};
}

void run(const Problem& problem, const AttendInto& into) {
  const Results results = checked_results(problem, into);
  if (problem.compute == Dtype::float64) {
    forward(problem, choose_strategy<double>(problem), results);
  } else {
    forward(problem, choose_strategy<float>(problem), results);
  }
}

template <class T>
Plan plan_with(const Problem& problem) {
  const Strategy<T> strategy = choose_strategy<T>(problem);
  Plan plan;
  plan.kernel = strategy.decode ? "decode" : "panel";
  plan.why = strategy.decode
                 ? message("Tq = ", problem.Tq, " is at most 4: keys and values are read once, in order, from memory")
                 : message("Tq = ", problem.Tq, " fills panels of ", strategy.max_lanes, " queries");
  if (strategy.share_pairs) plan.why += "; what the mask says pair by pair is put in panel order once for all heads";
  plan.isa = std::string(name_of(current_isa()));
  plan.panel = strategy.max_rows;
  plan.block = strategy.block_keys;
  plan.tasks = strategy.tasks(problem);
  plan.threads = useful_threads(problem, strategy);
  plan.peak_bytes = forward_bytes(problem, strategy, plan.threads);
  return plan;
}

}  // namespace

Attended attend(View q, View k, View v, const AttendOptions& options) {
  const Problem problem = check(q, k, v, options, "attend");
  Attended result;
  result.out = Tensor(problem.out_shape, problem.out_dtype);
  if (problem.want_lse) result.lse = Tensor(problem.lse_shape, problem.compute);
  if (problem.want_weights) result.weights = Tensor(problem.pair_shape, problem.compute);
  if (problem.want_scores != ScoreStage::none) result.scores = Tensor(problem.pair_shape, problem.compute);
  run(problem, {result.out, result.lse, result.weights, result.scores});
  return result;
}

void attend_into(View q, View k, View v, const AttendInto& into, const AttendOptions& options) {
  AttendOptions with_dtype = options;
  if (!options.out_dtype && into.out) with_dtype.out_dtype = into.out.dtype();
  run(check(q, k, v, with_dtype, "attend_into"), into);
}

Plan plan(View q, View k, View v, const AttendOptions& options) {
  const Problem problem = check(q, k, v, options, "plan");
  return problem.compute == Dtype::float64 ? plan_with<double>(problem) : plan_with<float>(problem);
}

}  // namespace qkv
