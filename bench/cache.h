// bench/cache.h: a cache that grows by a token, and a step of decoding from it.
#pragma once

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

// append: one token to all heads of a cache of Tk tokens; decode, decode_float16: one query for each head to them.
Bench cache_bench(const Options& options);

}  // namespace qkv::bench
