// reference/score.h: how well each key answers a query, one formula a line.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/score.h>

namespace qkv::reference {

// Boxcar, triangular and Epanechnikov: kernels that are 0 beyond a distance.
bool is_compact(const Score& score);

// The scores of queries [B, H, Tq, Dq] against keys [B, Hk, Tk, Dk], asked row by row. T is the type that is computed
// in.
template <class T>
class Scores {
 public:
  Scores(const Score& score, const View& q, const View& k);

  std::vector<T> row(std::int64_t b, std::int64_t h, std::int64_t i) const;  // [Tk], before any scale

 private:
  std::vector<T> products(const std::vector<T>& query, const T* keys) const;
  std::vector<T> distances(const T* query, const T* keys, std::int64_t h) const;
  std::vector<T> by_your_function(std::int64_t b, std::int64_t h, std::int64_t i, const T* query,
                                  std::int64_t key_head) const;

  Score score_;
  std::int64_t H_, Hk_, Tq_, Tk_, Dq_, Dk_, E_ = 0;
  std::vector<T> q_;             // [B, H, Tq, Dq]
  std::vector<T> k_;             // [B, Hk, Tk, Dk]
  std::vector<T> k_transposed_;  // [B, Hk, Dk, Tk]: the loop over keys is the inner one, over neighbours
  std::vector<std::vector<T>> matrix_, query_weights_, key_weights_, hidden_weights_, bandwidths_;  // of each head
  std::vector<std::vector<T>> hidden_keys_;  // of each sequence and query head: Wk k, [E, Tk]
};
extern template class Scores<double>;
extern template class Scores<float>;

}  // namespace qkv::reference
