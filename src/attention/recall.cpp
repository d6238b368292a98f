// attention/recall.cpp: what passes after the forward one have in common.
#include "attention/recall.h"

#include <cmath>
#include <numbers>

#include <qkv/error.h>

#include "base/message.h"
#include "base/numbers.h"

namespace qkv {
namespace {

void require_derivatives(const Problem& p) {
  const bool doubles = p.compute == Dtype::float64;
  const auto require = [&](const auto& part, const char* factory) {
    if (doubles ? part.derive_double != nullptr : part.derive_float != nullptr) return;
    throw OptionError(message(p.operation, ": a function given to ", factory, " needs its derivative for ",
                              name_of(p.compute), ": ", factory, "(f, df)"));
  };
  if (p.score.kind == Score::Kind::yours) require(p.score, "score_by");
  for (const mask_part::EditBy& edit : p.mask.edit_by()) require(edit, "edit_by");
}

}  // namespace

Problem check_again(const View& q, const View& k, const View& v, const AttendOptions& options, const char* operation) {
  AttendOptions with = options;
  with.want_lse = with.want_weights = with.want_mass = with.want_entropy = with.want_effective = false;
  with.want_partial = with.want_backward = false;
  with.want_top = 0;
  with.want_rows = {};
  with.want_scores = ScoreStage::none;
  Problem problem = check(q, k, v, with, operation);
  require_derivatives(problem);
  Weighing& w = problem.weighing;
  w.kept = 0;
  if (w.family == Family::selection) {
    w.family = Family::exponential;
    w.unit *= std::numbers::log2e;
    w.exclusion_only = w.hard;
  }
  return problem;
}

View required(const View& view, const char* name, std::initializer_list<std::int64_t> last, const Problem& problem) {
  if (!view) {
    throw OptionError(message(problem.operation, ": answer has no ", name,
                              "; attend must be asked with want_backward, and with want_entropy where its gradient is "
                              "given"));
  }
  return with_heads(view, last, problem, name);
}

bool has_state(const Weighing& weighing) { return weighing.normalized && !weighing.hard; }

double score_factor(const Weighing& weighing) {
  return weighing.family == Family::exponential ? weighing.unit * std::numbers::ln2 : weighing.unit;
}

template <class T>
bool is_empty(T state, PartialState kind) {
  return kind == PartialState::log_sum ? state == -infinity<T> : state == T(0);
}

template <class T>
T reference_of(T state, PartialState kind, const Weighing& weighing) {
  const bool logarithm = kind == PartialState::log_sum;
  if (weighing.family == Family::linear) {
    return is_empty(state, kind) ? T(0) : T(1) / (logarithm ? std::exp(state) : state);
  }
  if (is_empty(state, kind)) return infinity<T>;
  return logarithm ? static_cast<T>(static_cast<double>(state) * std::numbers::log2e) : std::log2(state);
}

template bool is_empty(float, PartialState);
template bool is_empty(double, PartialState);
template float reference_of(float, PartialState, const Weighing&);
template double reference_of(double, PartialState, const Weighing&);

}  // namespace qkv
