// base/numbers.h: the numbers that are none, by type.
#pragma once

#include <limits>

namespace qkv {

template <class T>
inline constexpr T infinity = std::numeric_limits<T>::infinity();
template <class T>
inline constexpr T quiet_nan = std::numeric_limits<T>::quiet_NaN();

}  // namespace qkv
