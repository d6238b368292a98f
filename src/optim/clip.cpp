// optim/clip.cpp: gradients whose common norm is bounded.
#include <algorithm>
#include <cmath>

#include <qkv/error.h>
#include <qkv/optim.h>

#include "base/blocks.h"
#include "base/message.h"
#include "kernels/arithmetic.h"
#include "kernels/steps.h"

namespace qkv {
namespace {

constexpr std::int64_t block = 1 << 15;

// work(pointer, count, index of the block) for all elements.
template <class T, class Work>
void for_elements(const MutableView& gradient, Work work) {
  for_blocks(gradient.elements(), block, [&](std::int64_t first, std::int64_t count) {
    work(gradient.as<T>() + first, count, static_cast<std::size_t>(first / block));
  });
}

double sum_of_squares(const MutableView& gradient) {
  std::vector<double> sums(static_cast<std::size_t>(divide_up(gradient.elements(), block)));
  const auto run = [&]<class T>(T) {
    const auto kernel = kernels::step_kernels<T>(current_isa()).sum_of_squares;
    for_elements<T>(gradient, [&](T* x, std::int64_t count, std::size_t i) { sums[i] = kernel(x, count); });
  };
  gradient.dtype() == Dtype::float64 ? run(0.0) : run(0.0f);
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum;
}

}  // namespace

double clip_grad_norm(const std::vector<NamedParameter>& parameters, double max_norm) {
  if (!(max_norm > 0)) throw OptionError(message("clip_grad_norm: max_norm must be above 0, and is ", max_norm));
  double sum = 0;
  for (const NamedParameter& named : parameters) sum += sum_of_squares(named.parameter.mutable_grad());
  const double norm = std::sqrt(sum);
  if (!std::isfinite(norm) || norm <= max_norm) return norm;
  for (const NamedParameter& named : parameters) {
    const MutableView gradient = named.parameter.mutable_grad();
    const auto run = [&]<class T>(T) {
      for_elements<T>(gradient, [&](T* x, std::int64_t count, std::size_t) {
        kernels::scale(x, count, static_cast<T>(max_norm / norm));
      });
    };
    gradient.dtype() == Dtype::float64 ? run(0.0) : run(0.0f);
  }
  return norm;
}

}  // namespace qkv
