// attention/attend.cpp: the public functions of qkv/attend.h and, for prepared keys, of qkv/prepared.h.
#include <qkv/attend.h>
#include <qkv/prepared.h>

#include "attention/ask.h"
#include "attention/attend_at.h"
#include "attention/problem.h"
#include "attention/scoring.h"

namespace qkv {

Attended attend_at(View q, View k, View v, const MutableView& out, const AttendOptions& options) {
  const Problem problem = check(q, k, v, options, "attend");
  return ask(problem, make_scoring(problem), out);
}

Attended attend(View q, View k, View v, const AttendOptions& options) { return attend_at(q, k, v, {}, options); }

void attend_into(View q, View k, View v, const AttendInto& into, const AttendOptions& options) {
  const Problem problem = check(q, k, v, with_places(options, into, "attend_into"), "attend_into");
  ask_into(problem, make_scoring(problem), into);
}

Plan plan(View q, View k, View v, const AttendOptions& options) {
  const Problem problem = check(q, k, v, options, "plan");
  return plan_ask(problem, make_scoring(problem));
}

Attended attend_at(View q, const Prepared& keys, const MutableView& out, const AttendOptions& options) {
  const Problem problem = check(q, keys.keys(), keys.values(), with_score(options, keys.score(), "attend"), "attend");
  return ask(problem, make_scoring(problem, keys.form()), out);
}

Attended attend(View q, const Prepared& keys, const AttendOptions& options) { return attend_at(q, keys, {}, options); }

void attend_into(View q, const Prepared& keys, const AttendInto& into, const AttendOptions& options) {
  constexpr const char* operation = "attend_into";
  const AttendOptions with = with_places(with_score(options, keys.score(), operation), into, operation);
  const Problem problem = check(q, keys.keys(), keys.values(), with, operation);
  ask_into(problem, make_scoring(problem, keys.form()), into);
}

Plan plan(View q, const Prepared& keys, const AttendOptions& options) {
  const Problem problem = check(q, keys.keys(), keys.values(), with_score(options, keys.score(), "plan"), "plan");
  return plan_ask(problem, make_scoring(problem, keys.form()));
}

}  // namespace qkv
