// bench/training.h: layers in training, forward and backward through the tape.
#pragma once

#include <string>

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

// gru     B = 64 sequences of T = 20 steps, 256 -> 512: the gradients of x and all weights
// linear  900 rows, 256 -> 4372: the same
void add_training_cases(Bench& bench, const Options& options);
// One of them.
Case layer_case(const std::string& name, int threads);

}  // namespace qkv::bench
