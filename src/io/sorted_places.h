// io/sorted_places.h: the order of things, without moving them.
#pragma once

#include <cstddef>
#include <vector>

#include "base/function_ref.h"

namespace qkv {

// The numbers 0 .. count - 1, ordered by `before`; equal ones stay in their order. One function for everything that is
// sorted: a sort by a template of its own takes 2 kB each.
std::vector<std::size_t> sorted_places(std::size_t count, FunctionRef<bool(std::size_t a, std::size_t b)> before);

}  // namespace qkv
