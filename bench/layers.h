// bench/layers.h: multi-head attention as a layer.
#pragma once

#include <cstdint>
#include <string>

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

// mha_forward   self-attention of B sequences of T tokens, width wide: four projections and attention between them
// mha_train     the same with the gradients of the input and of all parameters, through the tape
// mha_additive  mha_train with additive scores, whose parameters the heads share
Bench layers_bench(const Options& options);
Case layers_case(const std::string& name, std::int64_t B, std::int64_t T, std::int64_t width, std::int64_t heads,
                 int threads);

}  // namespace qkv::bench
