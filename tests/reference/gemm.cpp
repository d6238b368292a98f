// reference/gemm.cpp: the matrix product as its formula says.
#include "reference/gemm.h"

#include "reference/elements.h"

namespace qkv::reference {

template <class T>
std::vector<T> gemm(const View& a, const View& b) {
  const std::int64_t M = a.extent(0), K = a.extent(1), N = b.extent(1);
  const std::vector<T> left = elements<T>(a), right = elements<T>(b);
  std::vector<T> product(static_cast<std::size_t>(M * N), 0);
  for (std::int64_t i = 0; i < M; ++i) {
    for (std::int64_t k = 0; k < K; ++k) {
      const T factor = left[static_cast<std::size_t>(i * K + k)];
      const T* from = right.data() + k * N;
      T* to = product.data() + i * N;
      for (std::int64_t j = 0; j < N; ++j) to[j] += factor * from[j];
    }
  }
  return product;
}
template std::vector<double> gemm<double>(const View&, const View&);
template std::vector<float> gemm<float>(const View&, const View&);

}  // namespace qkv::reference
