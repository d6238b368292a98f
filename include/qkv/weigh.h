// qkv/weigh.h: the third station: how scores become weights.
#pragma once

#include <cstdint>

namespace qkv {

// Made by the factories below.
struct Weigh {
  enum class Kind : std::uint8_t { softmax };
  Kind kind = Kind::softmax;
};

// exp(score) over its sum: weights are non-negative and sum to 1.
constexpr Weigh softmax() { return {Weigh::Kind::softmax}; }

// What a query gets that may see no key.
enum class OnEmpty : std::uint8_t {
  zero,     // output 0, weights 0
  uniform,  // the mean of all Tk values, padding included, and weights 1/Tk; zeros where Tk is 0
  nan,      // output and weights NaN
  error,    // attend throws OptionError naming the first such query
};

}  // namespace qkv
