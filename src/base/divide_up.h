// base/divide_up.h: how many pieces of a size cover an extent.
#pragma once

#include <cstdint>

namespace qkv {

// extent / size, rounded up; neither is negative, and size is not 0.
constexpr std::int64_t divide_up(std::int64_t extent, std::int64_t size) { return (extent + size - 1) / size; }

}  // namespace qkv
