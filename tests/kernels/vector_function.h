// kernels/vector_function.h: functions on vectors, tried on any number of elements.
#pragma once

#include <cstddef>
#include <vector>

namespace qkv::kernels {

// Each instruction set has a type of its own for its table of functions, so a function is what is picked. It changes so
// many elements in place, a multiple of 16.
template <class T>
using VectorFunction = void (*)(T*, std::size_t);

// The function of each element.
template <class T>
std::vector<T> apply(VectorFunction<T> function, std::vector<T> x) {
  const std::size_t count = x.size();
  x.resize((count + 15) / 16 * 16, T(1));
  function(x.data(), x.size());
  x.resize(count);
  return x;
}

}  // namespace qkv::kernels
