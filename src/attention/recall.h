// attention/recall.h: a call again, after its forward pass: for its gradients or its rates of change.
#pragma once

#include <initializer_list>

#include <qkv/attend_backward.h>

#include "attention/problem.h"

namespace qkv {

// The problem as it is weighed again: nothing of what attend may have been asked for is. The weights of selections are
// those of softmax where the chosen keys are, and nothing else. Throws as check does, and OptionError where a user's
// function has no derivative.
Problem check_again(const View& q, const View& k, const View& v, const AttendOptions& options, const char* operation);

// A part of the answer in the shape it must have. Throws OptionError where it is absent.
View required(const View& view, const char* name, std::initializer_list<std::int64_t> last, const Problem& problem);

// Whether weights need a state, and what they are recomputed from: a weight is 2^(score - reference), or
// score * reference of linear weighings. A row that saw nothing has one that makes all weights 0.
bool has_state(const Weighing& weighing);
template <class T>
bool is_empty(T state, PartialState kind);
template <class T>
T reference_without_state(const Weighing& weighing) {
  return weighing.family == Family::linear ? T(1) : T(0);
}
template <class T>
T reference_of(T state, PartialState kind, const Weighing& weighing);

// From gradients by what is weighed to those by scores as they were given; from rates of scores the other way round.
double score_factor(const Weighing& weighing);

}  // namespace qkv
