// qkv/weigh.h: the third station: how scores become weights.
#pragma once

#include <cstdint>
#include <optional>

namespace qkv {

// Made by the factories below.
struct Weigh {
  enum class Kind : std::uint8_t { softmax, normalize, raw, hard, uniform, top_k };
  Kind kind = Kind::softmax;
  std::int64_t k = 0;                  // top_k
  std::optional<double> minimum = {};  // hard
};

// A NaN score makes the row NaN under all of them but uniform.

// exp(score) over its sum: weights are non-negative and sum to 1.
inline Weigh softmax() { return {.kind = Weigh::Kind::softmax}; }

// A kernel's value, or any other score itself, over its sum. Signed scores are allowed; a sum of exactly 0 is a row
// that sees no key.
inline Weigh normalize() { return {.kind = Weigh::Kind::normalize}; }

// A kernel's value, or any other score itself: any linear combination of the values, and where the weights are
// non-negative one in their convex cone.
inline Weigh raw() { return {.kind = Weigh::Kind::raw}; }

// Exactly one weight is 1, that of the largest score, the first among equals: a query of a database. With a minimum
// score, a row whose largest score is below it is one that sees no key: a query that finds nothing.
inline Weigh hard() { return {.kind = Weigh::Kind::hard}; }
inline Weigh hard(double minimum) { return {.kind = Weigh::Kind::hard, .minimum = minimum}; }

// 1/m for each of the m keys that are seen: average pooling. Reads no keys; scores and what is added to them have no
// say.
inline Weigh uniform() { return {.kind = Weigh::Kind::uniform}; }

// Softmax over the k largest scores, earlier keys first among equals. Memory besides inputs and results: O(k) a query.
inline Weigh top_k(std::int64_t k) { return {.kind = Weigh::Kind::top_k, .k = k}; }

// What a query gets that may see no key.
enum class OnEmpty : std::uint8_t {
  zero,     // output 0, weights 0
  uniform,  // the mean of all Tk values, padding included, and weights 1/Tk; zeros where Tk is 0
  nan,      // output and weights NaN
  error,    // attend throws OptionError naming the first such query
};

}  // namespace qkv
