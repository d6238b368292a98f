// attention/ahead.h: hints to the cache, so that a block need not wait for its records.
#pragma once

#include "attention/problem.h"
#include "attention/scoring.h"
#include "attention/sight.h"
#include "kernels/block.h"

namespace qkv {

// A panel's part in a hint that the panels of a group give together, one after the other.
struct Turn {
  int index, count;
  int tiles;  // that the panel computes meanwhile
};

// The records `next`, or, if there are none, the queries behind those of the group: another group is likely to ask for
// them. Only where rows lie side by side.
kernels::Ahead ahead_of(const Problem& problem, const ScoreWay& way, const PanelGroup& group, KeyRange next, Turn turn);

}  // namespace qkv
