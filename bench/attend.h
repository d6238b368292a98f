// bench/attend.h: attention of as many queries as keys.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

// H heads in all, T queries and keys, width D. The case is one of
//   plain    every query sees every key
//   causal   query i sees keys 0 .. i
//   lengths  the heads belong to several sequences, padded to T: see attend.cpp
//   window   query i sees keys i - T/4 .. i + T/4
//   alibi    plain, with a slope for each head
//   bias     plain, with a number added for each pair, [T, T] for all heads
//   keep     a random mask [T, T] for all heads; pairs that it excludes count as useful, for they are computed
// Throws OptionError for another.
Case attend_case(std::string_view name, std::int64_t H, std::int64_t T, std::int64_t D, int threads);

// All cases and sizes that the options leave.
Bench attend_bench(const Options& options);

}  // namespace qkv::bench
