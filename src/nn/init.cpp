// nn/init.cpp: parameters by chance.
#include <cmath>
#include <cstddef>
#include <numbers>

#include <qkv/error.h>
#include <qkv/nn.h>

#include "base/message.h"
#include "base/random.h"

namespace qkv::nn {
namespace {

// Random numbers of one stream, each from its own counters, so that element i is the same whatever comes before it.
class Numbers {
 public:
  explicit Numbers(std::uint64_t key) : key_(key) {}

  // 0 <= x < 1, with 53 random bits.
  double uniform(std::int64_t i) const {
    const std::uint64_t high = random_bits(key_, 2 * i), low = random_bits(key_, 2 * i + 1);
    return static_cast<double>((high << 21) ^ (low >> 11)) * 0x1p-53;
  }
  // Box and Muller's.
  double normal(std::int64_t i) const {
    const double radius = std::sqrt(-2 * std::log(1 - uniform(2 * i)));
    return radius * std::cos(2 * std::numbers::pi * uniform(2 * i + 1));
  }

 private:
  std::uint64_t key_;
};

template <class Number>
Variable filled(const Shape& shape, Dtype dtype, Number number) {
  Tensor values = Tensor::uninitialized(shape, dtype);
  const auto fill = [&](auto elements) {
    std::int64_t i = 0;
    for (auto& element : elements) element = static_cast<std::remove_reference_t<decltype(element)>>(number(i++));
  };
  if (dtype == Dtype::float64) {
    fill(values.values<double>());
  } else {
    fill(values.values<float>());
  }
  return parameter(std::move(values));
}

struct Fans {
  double in, out;
};

Fans fans_of(const Shape& shape) {
  if (shape.rank() < 2) {
    throw ShapeError(message("Init: a weight with fans is [out, in, ...], of rank 2 at least, not ", shape.text()));
  }
  double others = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) others *= static_cast<double>(shape[axis]);
  return {static_cast<double>(shape[1]) * others, static_cast<double>(shape[0]) * others};
}

// Weights without elements have no fan to divide by, and nothing to fill.
double root_over(double numerator, double fan) { return fan > 0 ? std::sqrt(numerator / fan) : 0; }

}  // namespace

Init::Init(std::uint64_t seed, Dtype dtype) : seed_(seed), dtype_(dtype) {
  if (dtype != Dtype::float32 && dtype != Dtype::float64) {
    throw DtypeError(message("Init: parameters are float32 or float64, not ", name_of(dtype)));
  }
}

Variable Init::uniform(const Shape& shape, double low, double high) {
  const Numbers numbers(random_key(seed_, next()));
  return filled(shape, dtype_, [&](std::int64_t i) { return low + (high - low) * numbers.uniform(i); });
}

Variable Init::normal(const Shape& shape, double mean, double deviation) {
  const Numbers numbers(random_key(seed_, next()));
  return filled(shape, dtype_, [&](std::int64_t i) { return mean + deviation * numbers.normal(i); });
}

Variable Init::xavier_uniform(const Shape& shape, double gain) {
  const Fans fans = fans_of(shape);
  const double bound = gain * root_over(6, fans.in + fans.out);
  return uniform(shape, -bound, bound);
}

Variable Init::xavier_normal(const Shape& shape, double gain) {
  const Fans fans = fans_of(shape);
  return normal(shape, 0, gain * root_over(2, fans.in + fans.out));
}

Variable Init::kaiming_uniform(const Shape& shape, double slope) {
  const double bound = root_over(6 / (1 + slope * slope), fans_of(shape).in);
  return uniform(shape, -bound, bound);
}

Variable Init::kaiming_normal(const Shape& shape, double slope) {
  return normal(shape, 0, root_over(2 / (1 + slope * slope), fans_of(shape).in));
}

Variable Init::zeros(const Shape& shape) const { return parameter(Tensor(shape, dtype_)); }

Variable Init::ones(const Shape& shape) const {
  return filled(shape, dtype_, [](std::int64_t) { return 1.0; });
}

}  // namespace qkv::nn
