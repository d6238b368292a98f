// support/random.h: random numbers that are the same on every machine and in every run.
#pragma once

#include <cstdint>

#include <qkv/tensor.h>

namespace qkv::test {

// SplitMix64: small, good enough for test data, and with no state of the standard library's choosing.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits();
  double uniform();                        // 0 <= x < 1
  double normal();                         // mean 0, variance 1
  std::int64_t below(std::int64_t count);  // 0 <= x < count
  bool chance(double probability) { return uniform() < probability; }

 private:
  std::uint64_t state_;
};

// Normal numbers times `scale`, rounded to the dtype; booleans are fair coins.
Tensor random_tensor(const Shape& shape, std::uint64_t seed, Dtype dtype = Dtype::float32, double scale = 1);

// Booleans that are true with this probability.
Tensor random_booleans(const Shape& shape, std::uint64_t seed, double probability_of_true);

// Integers from low to high, both included.
Tensor random_integers(const Shape& shape, std::uint64_t seed, std::int64_t low, std::int64_t high,
                       Dtype dtype = Dtype::int64);

// Writes a number into a view of any floating dtype or of booleans, at this distance (in elements) from its first.
void set_element(const MutableView& view, std::int64_t distance, double value);

}  // namespace qkv::test
