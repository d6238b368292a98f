// bench/measure.h: checks, measures and reports a benchmark.
#pragma once

#include "bench/cases.h"
#include "bench/report.h"
#include "bench/run.h"

namespace qkv::bench {

// Returns whether all outputs were right. A case whose output is wrong is reported as such and not timed.
bool measure(Bench& bench, const Options& options, Report& report);

}  // namespace qkv::bench
