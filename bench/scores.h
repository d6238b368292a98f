// bench/scores.h: what each score costs.
#pragma once

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

// One case for each score, by its name. Preparation of queries and keys is part of the call, and its products count as
// work. `additive` has cases of several hidden widths, and its time per (query, key, hidden unit).
Bench scores_bench(const Options& options);

}  // namespace qkv::bench
