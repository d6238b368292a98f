// kernels/processor.h: what makes processors of one instruction set differ in speed. Results may depend on it by
// rounding alone.
#pragma once

#include <cstdint>

namespace qkv::kernels {

bool is_intel();

std::int64_t second_level_cache();  // bytes; 512 KB where nobody knows

}  // namespace qkv::kernels
