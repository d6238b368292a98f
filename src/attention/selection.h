// attention/selection.h: the best scores of each row, and where they were.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/problem.h"
#include "attention/strategy.h"
#include "attention/workspace.h"

namespace qkv {

// The best of one row; among equal scores the later key is the worse. Few are kept as a sorted list, the best first;
// more as a heap whose top is the worst of them.
template <class T>
struct RowBest {
  T* scores;
  std::int64_t* indices;
  std::int32_t* count;  // -1: a score was NaN, and so is the row
  std::int64_t room;

  static constexpr int few = 8;
  // Places that arrays have for so many kept; those behind a short list hold -inf.
  static constexpr std::int64_t slots(std::int64_t kept) { return std::max<std::int64_t>(kept, few); }

  bool is_nan() const { return *count < 0; }
  T worst() const { return scores[room <= few ? *count - 1 : 0]; }
  void add(T score, std::int64_t index);
  void sort();  // by falling score, earlier keys first among equals; no longer a heap

 private:
  void insert(T score, std::int64_t index);
  void add_to_heap(T score, std::int64_t index);
};

// Follows the scores of a group of panels block by block. Scores of -inf are excluded pairs, and never among the best.
template <class T>
class Selection {
 public:
  Selection(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace)
      : problem_(problem), strategy_(strategy), w_(workspace) {}

  void begin(int panels);
  // A block of panel p's scores, from key `first` on.
  void add(int p, const Panel& panel, const T* scores, int keys, std::int64_t first);
  RowBest<T> row(int p, int r) const;

 private:
  void guess_thresholds(int p, const Panel& panel, const T* scores, int keys);

  const Problem& problem_;
  const Strategy<T>& strategy_;
  Workspace<T>& w_;
};

}  // namespace qkv
