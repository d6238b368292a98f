// support/random.cpp: random numbers that are the same on every machine and in every run.
#include "support/random.h"

#include <cmath>
#include <numbers>
#include <stdexcept>

namespace qkv::test {

std::uint64_t Random::bits() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

std::int64_t Random::below(std::int64_t count) {
  return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(count));
}

void set_element(const MutableView& view, std::int64_t distance, double value) {
  switch (view.dtype()) {
    case Dtype::float32:
      view.as<float>()[distance] = static_cast<float>(value);
      return;
    case Dtype::float64:
      view.as<double>()[distance] = value;
      return;
    case Dtype::float16:
      view.as<Float16>()[distance] = Float16(static_cast<float>(value));
      return;
    case Dtype::bfloat16:
      view.as<BFloat16>()[distance] = BFloat16(static_cast<float>(value));
      return;
    case Dtype::boolean:
      view.as<bool>()[distance] = value != 0;
      return;
    case Dtype::int32:
    case Dtype::int64:
      break;
  }
  throw std::logic_error("set_element: floating dtypes and booleans only");
}

Tensor random_tensor(const Shape& shape, std::uint64_t seed, Dtype dtype, double scale) {
  Tensor tensor(shape, dtype);
  Random random(seed);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    set_element(tensor.view(), i, dtype == Dtype::boolean ? (random.chance(0.5) ? 1 : 0) : scale * random.normal());
  }
  return tensor;
}

Tensor random_booleans(const Shape& shape, std::uint64_t seed, double probability_of_true) {
  Tensor tensor(shape, Dtype::boolean);
  Random random(seed);
  for (bool& b : tensor.values<bool>()) b = random.chance(probability_of_true);
  return tensor;
}

Tensor random_integers(const Shape& shape, std::uint64_t seed, std::int64_t low, std::int64_t high, Dtype dtype) {
  Tensor tensor(shape, dtype);
  Random random(seed);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::int64_t value = low + random.below(high - low + 1);
    if (dtype == Dtype::int64) tensor.values<std::int64_t>()[static_cast<std::size_t>(i)] = value;
    if (dtype == Dtype::int32)
      tensor.values<std::int32_t>()[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(value);
  }
  return tensor;
}

}  // namespace qkv::test
