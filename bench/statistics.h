// bench/statistics.h: what each statistic costs that comes from the same pass.
#pragma once

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

// One case for each statistic, by its name, and `none`.
Bench statistics_bench(const Options& options);

}  // namespace qkv::bench
