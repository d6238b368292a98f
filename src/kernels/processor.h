// kernels/processor.h: what makes processors of one instruction set differ in speed. Results may depend on it by
// rounding alone.
#pragma once

#include <cstdint>

#include "kernels/block.h"

namespace qkv::kernels {

bool is_intel();

Reading best_reading(std::int64_t row_bytes);

std::int64_t second_level_cache();  // bytes; 512 KB where nobody knows

}  // namespace qkv::kernels
