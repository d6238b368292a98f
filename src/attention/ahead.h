// attention/ahead.h: hints to the cache, so that blocks need not wait for what they read.
#pragma once

#include "attention/problem.h"
#include "attention/scoring.h"
#include "attention/sight.h"
#include "kernels/block.h"

namespace qkv {

// The records `next` or, if there are none, what another group is likely to read after this one: the queries behind
// these or, of heads whose short rows lie apart, the next head. Hints are given only where they have been seen to gain
// something; a layer of 12 heads of 32 gains 3 %, one of 8 heads of 64 a point.
kernels::Ahead ahead_of(const Problem& problem, const ScoreWay& way, const PanelGroup& group, KeyRange next);

// What the tiles of one panel ask for, if all of so many panels ask in turn.
kernels::Ahead part_of(const kernels::Ahead& ahead, int panel, int panels, int tiles);

}  // namespace qkv
