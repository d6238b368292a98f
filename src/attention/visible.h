// attention/visible.h: which keys any query may see at all: others are not read, not even to prepare them.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "attention/resolved_mask.h"
#include "base/function_ref.h"

namespace qkv {

// Runs of visible keys, rising, for each (batch, key head): [B * Hk].
using VisibleRuns = std::vector<std::vector<KeyRange>>;

// All keys.
VisibleRuns all_visible(std::int64_t B, std::int64_t Hk, std::int64_t Tk);

// Those that the mask of a call shows to some query.
VisibleRuns visible_runs(const Problem& problem);

// Calls each(i, j) for rows j of head i, of `heads` heads with `count` rows each: those in `runs`; null: all.
void for_each_row(std::int64_t heads, std::int64_t count, const VisibleRuns* runs,
                  FunctionRef<void(std::int64_t i, std::int64_t j)> each);

}  // namespace qkv
