// bench/backward.h: the backward pass of attention.
#pragma once

#include <cstdint>
#include <string_view>

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

Bench backward_bench(const Options& options);

// Forward and backward through the tape, for comparison with peers: "plain" and "causal", H heads of T queries and
// keys, D wide; "additive" with the gradients of its weights, H sequences of T queries and 4 T keys, all D wide; and
// "additive_forward", which is what it says.
Case training_case(std::string_view name, std::int64_t H, std::int64_t T, std::int64_t D, int threads);

}  // namespace qkv::bench
