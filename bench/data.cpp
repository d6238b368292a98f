// bench/data.cpp: the numbers that benchmarks compute with.
#include "bench/data.h"

namespace qkv::bench {
namespace {

// A linear congruential generator; its upper bits are random enough for a benchmark.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  std::int32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int32_t>(state_ >> 32);
  }

 private:
  std::uint64_t state_;
};

}  // namespace

void fill(std::span<float> values, std::uint64_t seed, float size) {
  Generator generator(seed);
  const float unit = size * 0x1p-31f;
  for (float& value : values) value = static_cast<float>(generator.next()) * unit;
}

void fill(std::span<bool> values, std::uint64_t seed) {
  Generator generator(seed);
  for (bool& value : values) value = generator.next() < 0x40000000;
}

}  // namespace qkv::bench
