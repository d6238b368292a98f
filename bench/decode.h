// bench/decode.h: attention of one query for each head to many keys, as when a text is generated word by word.
#pragma once

#include <cstdint>
#include <string_view>

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

// H query heads ask T keys of width D. The case is one of
//   float32   each head has its keys
//   float16   the same, with keys and values stored as float16
//   grouped   four query heads share a key head
//   separate  the same number of query heads, each with its own keys: what `grouped` is compared with
// Throws OptionError for another.
Case decode_case(std::string_view name, std::int64_t H, std::int64_t T, std::int64_t D, int threads);

// All cases and sizes that the options leave.
Bench decode_bench(const Options& options);

}  // namespace qkv::bench
