// base/checked.h: arithmetic on sizes that throws instead of wrapping.
#pragma once

#include <cstdint>

namespace qkv {

// Throw ShapeError naming `what` where the result does not fit in 64 bits.
std::int64_t checked_mul(std::int64_t a, std::int64_t b, const char* what);
std::int64_t checked_add(std::int64_t a, std::int64_t b, const char* what);

}  // namespace qkv
