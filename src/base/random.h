// base/random.h: a counter-based generator: random bits are a function of a key and a counter, not of what came before.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace qkv {

// A good mix of 64 bits: every bit of x reaches every bit of the result.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The key of one stream, from what names it.
template <class... Names>
constexpr std::uint64_t random_key(std::uint64_t seed, Names... names) {
  std::uint64_t key = mixed(seed);
  ((key = mixed(key ^ static_cast<std::uint64_t>(names))), ...);
  return key;
}

// 32 random bits, number `counter` of the stream. Two rounds of a 32-bit mix, each with half of the key, so that
// a vector of them costs a few instructions. Counters are taken modulo 2^32.
constexpr std::uint32_t random_bits(std::uint64_t key, std::int64_t counter) {
  std::uint32_t x = static_cast<std::uint32_t>(counter) * 0x9e3779b9u + static_cast<std::uint32_t>(key);
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  x ^= x >> 16;
  x += static_cast<std::uint32_t>(key >> 32);
  x = (x ^ (x >> 16)) * 0x21f0aaadu;
  x = (x ^ (x >> 15)) * 0x735a2d97u;
  return x ^ (x >> 15);
}

// What is dropped with this probability, 0 <= p < 1, are the elements whose random bits are below it.
inline std::uint32_t drop_threshold(double probability) {
  return static_cast<std::uint32_t>(std::min(std::round(probability * 0x1p32), 0x1p32 - 1));
}

}  // namespace qkv
