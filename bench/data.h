// bench/data.h: the numbers that benchmarks compute with.
#pragma once

#include <cstdint>
#include <span>

namespace qkv::bench {

// Uniform in [-size, size], the same for the same seed, at memory speed.
void fill(std::span<float> values, std::uint64_t seed, float size = 1);

// True three times out of four.
void fill(std::span<bool> values, std::uint64_t seed);

}  // namespace qkv::bench
