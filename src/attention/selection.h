// attention/selection.h: the best scores of each row, and where they were.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "attention/strategy.h"
#include "attention/workspace.h"

namespace qkv {

// The best of one row: a heap whose top is the worst of them; among equal scores the later key is the worse.
template <class T>
struct RowBest {
  T* scores;
  std::int64_t* indices;
  std::int32_t* count;  // -1: a score was NaN, and so is the row
  std::int64_t room;

  bool is_nan() const { return *count < 0; }
  void add(T score, std::int64_t index);
  void sort();  // by falling score, earlier keys first among equals; no longer a heap
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
  const Problem& problem_;
  const Strategy<T>& strategy_;
  Workspace<T>& w_;
};

}  // namespace qkv
