// io/npy_parse.h: a whole .npy file that is in memory already. For tests and fuzzing.
#pragma once

#include <cstddef>
#include <span>

#include <qkv/tensor.h>

namespace qkv {

// Throws FileError with the reason, without a path.
Tensor parse_npy(std::span<const std::byte> file);

}  // namespace qkv
