// qkv/version.h: which qkv this is.
#pragma once

#include <string_view>

namespace qkv {

inline constexpr std::string_view version = "0.1.0";

}  // namespace qkv
