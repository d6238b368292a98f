// bench/weighings.h: what each weighing costs.
#pragma once

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

// One case for each weighing, by its name.
Bench weighings_bench(const Options& options);

}  // namespace qkv::bench
