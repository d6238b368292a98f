// qkv/score.h: the first station: how well a key answers a query.
#pragma once

#include <cstdint>

namespace qkv {

// A score is a real number per (query, key). Made by the factories below.
struct Score {
  enum class Kind : std::uint8_t { dot, scaled_dot };
  Kind kind = Kind::scaled_dot;
};

// q . k
constexpr Score dot() { return {Score::Kind::dot}; }

// q . k / sqrt(D), with D the width of queries and keys, never of values.
constexpr Score scaled_dot() { return {Score::Kind::scaled_dot}; }

}  // namespace qkv
