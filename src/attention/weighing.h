// attention/weighing.h: how the scores of a call become weights, as the loop needs to know it.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace qkv {

// There are three ways to go through the blocks:
//   exponential  weights are 2^(score - max), relative to a running maximum; scores are in units of ln(2)
//   linear       the weights are the scores themselves; what is excluded is 0
//   selection    the best scores and their places are kept; values are fetched when all keys have been seen
enum class Family : std::uint8_t { exponential, linear, selection };

struct Weighing {
  Family family = Family::exponential;
  double unit = 1;              // scores are multiplied by it: 1 / temperature, and log2(e) where they become exponents
  bool normalized = true;       // weights are divided by their sum
  bool kernel_values = false;   // linear: the scores are a kernel's values, not their logarithms
  bool compact = false;         // a score of -inf, from a kernel's 0, excludes
  bool exclusion_only = false;  // uniform: scores and what is added to them have no say
  // Selection.
  bool hard = false;
  std::int64_t selected = 0;  // scores that get weight, per row; 0 in the other families
  std::optional<double> minimum = {};
  // Best scores that are kept per row, for the selection or because they were asked for; 0 is none.
  std::int64_t kept = 0;
};

// What a row's sums are multiplied by in the end, where it is a regular one; see kernels::WeighArgs for max and sum.
template <class T>
T row_factor(const Weighing& weighing, T max, T sum) {
  if (weighing.normalized) return T(1) / sum;
  return weighing.family == Family::exponential ? std::exp2(max) : T(1);
}

}  // namespace qkv
