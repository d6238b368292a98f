// reference/gemm.h: the matrix product as its formula says.
#pragma once

#include <vector>

#include <qkv/tensor.h>

namespace qkv::reference {

// a [M, K] times b [K, N]: [M, N], dense. T = double is the reference, T = float the yardstick of its errors.
template <class T>
std::vector<T> gemm(const View& a, const View& b);

}  // namespace qkv::reference
