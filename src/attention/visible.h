// attention/visible.h: which keys any query may see at all: others are not read, not even to prepare them.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "attention/resolved_mask.h"

namespace qkv {

// Runs of visible keys, rising, for each (batch, key head): [B * Hk].
using VisibleRuns = std::vector<std::vector<KeyRange>>;

// All keys.
VisibleRuns all_visible(std::int64_t B, std::int64_t Hk, std::int64_t Tk);

// Those that the mask of a call shows to some query.
VisibleRuns visible_runs(const Problem& problem);

}  // namespace qkv
