// kernels/functions.h: functions of one number, element by element, and their derivatives.
//
// float runs on vectors of the instruction set; double, which serves gradient checks, one by one by the C library.
#pragma once

#include <cstdint>

#include <qkv/isa.h>

namespace qkv::kernels {

enum class Function : std::uint8_t { tanh, sigmoid, relu, gelu, gelu_tanh, exp, log };

template <class T>
struct FunctionKernels {
  // y[i] = f(x[i]); y may be x.
  void (*forward)(const T* x, std::int64_t count, T* y);
  // dy[i] *= f'(x[i]). kept[i] is x[i] or, where the derivative is a function of it, y[i] = f(x[i]); see keeps_result.
  void (*backward)(const T* kept, std::int64_t count, T* dy);
};
template <class T>
const FunctionKernels<T>& function_kernels(Function function, Isa isa);

constexpr bool keeps_result(Function function) {
  return function != Function::gelu && function != Function::gelu_tanh && function != Function::log;
}

// target[i] = source[i] * factor where number `counter + i` of the random stream is at least `threshold`, 0 elsewhere.
template <class T>
struct DropoutArgs {
  const T* source;
  std::int64_t count;
  std::uint64_t key;
  std::int64_t counter;
  std::uint32_t threshold;
  T factor;
  T* target;
};
template <class T>
using DropoutKernel = void (*)(const DropoutArgs<T>& args);
template <class T>
DropoutKernel<T> dropout_kernel(Isa isa);

}  // namespace qkv::kernels
