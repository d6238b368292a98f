// attention/ask.h: a checked call, run: what attend, attend_into and plan do for keys of any origin.
#pragma once

#include <qkv/attend.h>

#include "attention/problem.h"
#include "attention/scoring.h"

namespace qkv {

// With a place for `out`, as attend_into takes it, it is written there and absent in the result.
Attended ask(const Problem& problem, const Scoring& scoring, const MutableView& out = {});
// Throws ShapeError, DtypeError, OptionError where a place does not fit.
void ask_into(const Problem& problem, const Scoring& scoring, const AttendInto& into);
Plan plan_ask(const Problem& problem, const Scoring& scoring);

// The options of attend_into: what is wanted is what has a place.
AttendOptions with_places(const AttendOptions& options, const AttendInto& into, const char* operation);
// The options of an ask whose keys have a score already.
AttendOptions with_score(const AttendOptions& options, const Score& score, const char* operation);

}  // namespace qkv
