// reference/attend.h: attention as its formula says, in naive loops: what every kernel is checked against.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/attend.h>

namespace qkv::reference {

struct Extents {
  std::int64_t B, H, Hk, Tq, Tk, D, Dv;
};

// What one query gets, at every station.
template <class T>
struct Row {
  std::vector<T> scaled, capped, biased;  // [Tk], as ScoreStage names them
  std::vector<T> weights;                 // [Tk]
  std::vector<T> out;                     // [Dv]
  T lse = 0;
  bool empty = false;  // it may see no key
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
  void edit(std::vector<T>& scores, std::int64_t b, std::int64_t h, std::int64_t i) const;
  T added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  std::vector<bool> seen(std::int64_t b, std::int64_t h, std::int64_t i) const;
  long double position(std::int64_t b, std::int64_t i) const;

  AttendOptions options_;
  Extents extents_;
  T scale_;
  std::vector<T> q_;                  // [B, H, Tq, D]
  std::vector<T> k_transposed_;       // [B, Hk, D, Tk]: the loop over keys is the inner one, over neighbours
  std::vector<T> v_;                  // [B, Hk, Tk, Dv]
  std::vector<long double> offsets_;  // [B]: query i stands at key i + offset; holds every sum of two int64
};
extern template class Attention<double>;
extern template class Attention<float>;

// All rows, dense: out [B, H, Tq, Dv], lse [B, H, Tq], weights and scores [B, H, Tq, Tk], scores at
// options.want_scores (absent for none).
template <class T>
struct Attended {
  std::vector<T> out, lse, weights, scores;
};
template <class T>
Attended<T> attend(const View& q, const View& k, const View& v, const AttendOptions& options);

}  // namespace qkv::reference
