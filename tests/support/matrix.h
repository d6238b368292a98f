// support/matrix.h: how much is tested: the quick matrix, or the full one with QKV_TEST_MATRIX=full.
#pragma once

#include <cstdlib>
#include <string_view>

namespace qkv::test {

inline bool full_matrix() {
  const char* matrix = std::getenv("QKV_TEST_MATRIX");
  return matrix != nullptr && std::string_view(matrix) == "full";
}

}  // namespace qkv::test
