// bench/gemm.h: matrix products.
#pragma once

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

// square    M = K = N, the second factor packed on the way
// packed    the second factor packed beforehand
// per_call  the same shapes, packed on the way
Bench gemm_bench(const Options& options);

}  // namespace qkv::bench
