// ops/functions.cpp: functions of one number, element by element.
#include "kernels/functions.h"

#include <qkv/ops.h>

#include "base/blocks.h"
#include "ops/check.h"

namespace qkv {
namespace {

using kernels::Function;

constexpr std::int64_t block = 1 << 13;  // elements of one task

template <class T>
Tensor forward(Function function, const View& x) {
  Tensor y = Tensor::uninitialized(x.shape(), x.dtype());
  const auto& kernels = kernels::function_kernels<T>(function, current_isa());
  for_blocks(x.elements(), block, [&](std::int64_t first, std::int64_t count) {
    kernels.forward(x.as<T>() + first, count, y.values<T>().data() + first);
  });
  return y;
}

template <class T>
void backward(Function function, const View& kept, Tensor& dy) {
  const auto& kernels = kernels::function_kernels<T>(function, current_isa());
  for_blocks(dy.elements(), block, [&](std::int64_t first, std::int64_t count) {
    kernels.backward(kept.as<T>() + first, count, dy.values<T>().data() + first);
  });
}

// y = f(x). Backward: dx = dy f'(x); see kernels::Function for f'. Keeps x or, where f' is a function of it, y.
Variable applied(const char* name, Function function, const Variable& argument) {
  const bool is_double = common_dtype(name, {&argument}) == Dtype::float64;
  const Variable x = dense(argument);
  const Variable y(is_double ? forward<double>(function, x.value()) : forward<float>(function, x.value()));
  return record(name, y, {argument}, [function, is_double, kept = keeps_result(function) ? y : x](Backward& back) {
    Tensor dx = back.take_upstream();
    is_double ? backward<double>(function, kept.value(), dx) : backward<float>(function, kept.value(), dx);
    back.add(0, std::move(dx));
  });
}

}  // namespace

Variable tanh(const Variable& x) { return applied("tanh", Function::tanh, x); }
Variable sigmoid(const Variable& x) { return applied("sigmoid", Function::sigmoid, x); }
Variable relu(const Variable& x) { return applied("relu", Function::relu, x); }
Variable gelu(const Variable& x, GeluForm form) {
  return applied("gelu", form == GeluForm::erf ? Function::gelu : Function::gelu_tanh, x);
}
Variable exp(const Variable& x) { return applied("exp", Function::exp, x); }
Variable log(const Variable& x) { return applied("log", Function::log, x); }

}  // namespace qkv
