// tensor/extents.h: the texts of shapes of any rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace qkv {

// "[2, 8, 128, 64]"; only the first 64, and an ellipsis, where there are more.
std::string text_of_extents(std::span<const std::int64_t> extents);

}  // namespace qkv
