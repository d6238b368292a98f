// bench/backward.h: the backward pass of attention.
#pragma once

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

Bench backward_bench(const Options& options);

}  // namespace qkv::bench
