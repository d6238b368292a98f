// reference/attend.h: attention as its formula says, in naive loops: what every kernel is checked against.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/attend.h>

#include "reference/mask.h"
#include "reference/score.h"

namespace qkv::reference {

// What one query gets, at every station.
template <class T>
struct Row {
  std::vector<T> scaled, capped, biased;  // [Tk], as ScoreStage names them: before the temperature
  std::vector<T> weighed;                 // [Tk], the scores that are weighed: biased / temperature
  std::vector<T> weights;                 // [Tk]
  std::vector<T> out;                     // [Dv], after dropout
  bool empty = false;                     // it may see no key
  T lse = 0;                              // of softmax, normalize and top_k
  T entropy = 0, effective = 0;           // of the same, where options want one of them
  std::vector<T> top_weights;             // [options.want_top]
  std::vector<std::int64_t> top_indices;
  T state = 0;  // as PartialState names it
  std::int64_t index = -1;
};

// Attention that is asked row by row, so that a large shape can be checked at a few of its queries.
// T = double is the reference; T = float is the yardstick of its errors: the same loops in plain float32.
// Takes what attend takes and checks nothing. OnEmpty::error answers like OnEmpty::zero; see Row::empty.
template <class T>
class Attention {
 public:
  Attention(const View& q, const View& k, const View& v, const AttendOptions& options);

  const Extents& extents() const { return extents_; }
  Row<T> row(std::int64_t b, std::int64_t h, std::int64_t i) const;

 private:
  T drop(T weight, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;

  AttendOptions options_;
  Extents extents_;
  T scale_;
  Scores<T> scores_;
  Sight<T> sight_;
  std::vector<T> v_;  // [B, Hk, Tk, Dv]
};
extern template class Attention<double>;
extern template class Attention<float>;

// All rows, dense: out [B, H, Tq, Dv], lse, entropy, effective, state and index [B, H, Tq], weights, scores and weighed
// [B, H, Tq, Tk], scores at options.want_scores (absent for none), row_weights [B, H, R, Tk], mass [B, H, Tk],
// top_weights and top_indices [B, H, Tq, want_top].
template <class T>
struct Attended {
  std::vector<T> out, lse, weights, row_weights, scores, weighed, mass, top_weights, entropy, effective, state;
  std::vector<std::int64_t> top_indices, index;
};
template <class T>
Attended<T> attend(const View& q, const View& k, const View& v, const AttendOptions& options);

}  // namespace qkv::reference
