// reference/weigh.h: how the scores of one query become weights.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/weigh.h>

namespace qkv::reference {

// What one row of scores becomes.
template <class T>
struct Weighed {
  std::vector<T> weights;    // [Tk]; 0 where a key is not seen
  std::vector<bool> pooled;  // whose values are added up: 0 * NaN of the others would be NaN
  bool empty = false;        // no key is left
  T lse = 0;                 // softmax, normalize, top_k
  T sum = 0;                 // normalize: of the scores themselves
  std::int64_t count = 0;    // uniform
  T best = 0;                // hard: the largest score, and its place
  std::int64_t index = -1;
};

// Whether the weighing takes the exponential of a score: always with softmax and top_k, whose scores are logarithms of
// weights, and with normalize and raw where the score is the logarithm of a kernel.
template <class T>
Weighed<T> weigh(const std::vector<T>& scores, const std::vector<bool>& seen, const Weigh& how, bool is_kernel);

// The places of the keys that are seen, by falling score, earlier first among equals. No score is NaN.
template <class T>
std::vector<std::int64_t> by_falling_score(const std::vector<T>& scores, const std::vector<bool>& seen);

}  // namespace qkv::reference
