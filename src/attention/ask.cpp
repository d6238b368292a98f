// attention/ask.cpp: makes room for results, and runs a call.
#include "attention/ask.h"

#include <initializer_list>
#include <string>

#include <qkv/error.h>
#include <qkv/isa.h>

#include "attention/forward.h"
#include "attention/strategy.h"
#include "base/message.h"

namespace qkv {
namespace {

// A result's view as [B, H, and the last axes].
MutableView result_view(const MutableView& view, std::initializer_list<std::int64_t> last, Dtype dtype,
                        const Problem& p, const char* name) {
  if (!view) return {};
  const MutableView seen = with_heads(view, last, p, name);
  if (view.dtype() != dtype) {
    throw DtypeError(message(p.operation, ": ", name, " must be ", name_of(dtype), ", not ", name_of(view.dtype())));
  }
  return seen;
}

// What merge and attend_backward need, where it was asked for.
struct StateInto {
  MutableView state, index, chosen;
};

Results checked_results(const Problem& p, const AttendInto& into, const StateInto& state) {
  if (!into.out) throw ShapeError(message(p.operation, ": out must be given, of shape ", p.shape({p.Tq, p.Dv}).text()));
  const auto together = [&](bool given, bool wanted, const char* view, const char* option) {
    if (given == wanted) return;
    throw OptionError(
        message(p.operation, ": into.", view, " and options.", option, " go together; one is given without the other"));
  };
  together(static_cast<bool>(into.scores), p.want_scores != ScoreStage::none, "scores", "want_scores");
  together(static_cast<bool>(into.row_weights), p.want_row_weights, "row_weights", "want_rows");
  together(static_cast<bool>(into.top_weights), p.want_top > 0, "top_weights", "want_top");
  const auto rows = static_cast<std::int64_t>(p.want_rows.size());
  Results to;
  to.out = result_view(into.out, {p.Tq, p.Dv}, p.out_dtype, p, "out");
  to.weights = result_view(into.weights, {p.Tq, p.Tk}, p.compute, p, "weights");
  to.scores = result_view(into.scores, {p.Tq, p.Tk}, p.compute, p, "scores");
  to.row_weights = result_view(into.row_weights, {rows, p.Tk}, p.compute, p, "row_weights");
  to.top_weights = result_view(into.top_weights, {p.Tq, p.want_top}, p.compute, p, "top_weights");
  to.top_indices = result_view(into.top_indices, {p.Tq, p.want_top}, Dtype::int64, p, "top_indices");
  to.lse = result_view(into.lse, {p.Tq}, p.compute, p, "lse");
  to.entropy = result_view(into.entropy, {p.Tq}, p.compute, p, "entropy");
  to.effective = result_view(into.effective, {p.Tq}, p.compute, p, "effective");
  to.mass = result_view(into.mass, {p.Tk}, p.compute, p, "mass");
  to.state = result_view(state.state, {p.Tq}, p.compute, p, "state");
  to.index = result_view(state.index, {p.Tq}, Dtype::int64, p, "index");
  to.chosen = result_view(state.chosen, {p.Tq, p.weighing.selected}, Dtype::int64, p, "chosen");
  return to;
}

void run(const Problem& problem, const Scoring& scoring, const Results& results) {
  if (problem.compute == Dtype::float64) {
    forward(problem, choose_strategy<double>(problem, scoring), results);
  } else {
    forward(problem, choose_strategy<float>(problem, scoring), results);
  }
}

template <class T>
Plan plan_with(const Problem& problem, const Scoring& scoring) {
  const Strategy<T> strategy = choose_strategy<T>(problem, scoring);
  Plan plan;
  plan.kernel = strategy.decode ? "decode" : "panel";
  plan.why = strategy.decode
                 ? message("Tq = ", problem.Tq, " is at most 4: keys and values are read once, in order, from memory")
                 : message("Tq = ", problem.Tq, " fills panels of ", strategy.max_lanes, " queries");
  if (strategy.share_pairs) plan.why += "; what the mask says pair by pair is put in panel order once for all heads";
  if (const std::int64_t heads = scoring.exact_heads(); heads > 0) {
    plan.why += message("; ", heads, " of ", problem.B * problem.H, " heads ",
                        problem.score.kind == Score::Kind::gaussian
                            ? "go by distances: their keys or queries lie so far apart that norms would cancel badly"
                            : "go by tanh: the exponentials of their projections would overflow");
  }
  plan.isa = std::string(name_of(current_isa()));
  plan.panel = strategy.max_rows;
  plan.block = strategy.block_keys;
  plan.tasks = strategy.tasks(problem);
  plan.threads = useful_threads(problem, strategy, plan.tasks);
  plan.peak_bytes = forward_bytes(problem, strategy, plan.threads) + scoring.bytes();
  return plan;
}

}  // namespace

Attended ask(const Problem& p, const Scoring& scoring, const MutableView& out) {
  Attended result;
  if (!out) result.out = Tensor::uninitialized(p.shape({p.Tq, p.Dv}), p.out_dtype);
  const auto make = [&](bool wanted, Tensor& tensor, std::initializer_list<std::int64_t> last, Dtype dtype) {
    if (wanted) tensor = Tensor(p.shape(last), dtype);
  };
  make(p.want_lse, result.lse, {p.Tq}, p.compute);
  make(p.want_weights, result.weights, {p.Tq, p.Tk}, p.compute);
  make(p.want_row_weights, result.row_weights, {static_cast<std::int64_t>(p.want_rows.size()), p.Tk}, p.compute);
  make(p.want_scores != ScoreStage::none, result.scores, {p.Tq, p.Tk}, p.compute);
  make(p.want_mass, result.mass, {p.Tk}, p.compute);
  make(p.want_top > 0, result.top_weights, {p.Tq, p.want_top}, p.compute);
  make(p.want_top > 0, result.top_indices, {p.Tq, p.want_top}, Dtype::int64);
  make(p.want_entropy, result.entropy, {p.Tq}, p.compute);
  make(p.want_effective, result.effective, {p.Tq}, p.compute);
  make(p.state_kind > PartialState::answer, result.state, {p.Tq}, p.compute);
  make(p.state_kind == PartialState::best, result.index, {p.Tq}, Dtype::int64);
  make(p.want_backward && p.weighing.family == Family::selection && !p.weighing.hard, result.chosen,
       {p.Tq, p.weighing.selected}, Dtype::int64);
  result.state_kind = p.state_kind;
  const AttendInto into{out ? out : result.out.view(),
                        result.lse,
                        result.weights,
                        result.scores,
                        result.row_weights,
                        result.mass,
                        result.top_weights,
                        result.top_indices,
                        result.entropy,
                        result.effective};
  run(p, scoring, checked_results(p, into, {result.state, result.index, result.chosen}));
  return result;
}

void ask_into(const Problem& problem, const Scoring& scoring, const AttendInto& into) {
  run(problem, scoring, checked_results(problem, into, {}));
}

Plan plan_ask(const Problem& problem, const Scoring& scoring) {
  return problem.compute == Dtype::float64 ? plan_with<double>(problem, scoring) : plan_with<float>(problem, scoring);
}

AttendOptions with_places(const AttendOptions& options, const AttendInto& into, const char* operation) {
  AttendOptions with = options;
  if (options.want_partial) throw OptionError(message(operation, ": want_partial is for attend"));
  if (options.want_backward) throw OptionError(message(operation, ": want_backward is for attend"));
  if (!options.out_dtype && into.out) with.out_dtype = into.out.dtype();
  with.want_lse = static_cast<bool>(into.lse);
  with.want_weights = static_cast<bool>(into.weights);
  with.want_mass = static_cast<bool>(into.mass);
  with.want_entropy = static_cast<bool>(into.entropy);
  with.want_effective = static_cast<bool>(into.effective);
  return with;
}

AttendOptions with_score(const AttendOptions& options, const Score& score, const char* operation) {
  if (options.score.kind != Score().kind) {
    throw OptionError(message(operation, ": options.score must be left as it is, not ", name_of(options.score.kind),
                              ": prepared keys and those of a cache have their score, here ", name_of(score.kind)));
  }
  AttendOptions with = options;
  with.score = score;
  return with;
}

}  // namespace qkv
