// attention/selection.h: the best scores of each row, and where they were.
#pragma once

#include <cstdint>
#include <span>

#include "attention/problem.h"
#include "attention/strategy.h"
#include "attention/workspace.h"

namespace qkv {

// The best of one row; among equal scores the later key is the worse. While scores are added it is a heap, whose top is
// the worst of them.
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
// Few are kept in sorted slots, for all rows of a panel at once; more in a heap per row.
template <class T>
class Selection {
 public:
  Selection(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace)
      : problem_(problem), strategy_(strategy), w_(workspace) {}

  void begin(std::span<const Panel> panels);
  // A block of panel p's scores, from key `first` on. What lies beyond the last key may be overwritten.
  void add(int p, const Panel& panel, T* scores, int keys, std::int64_t first);
  void end(std::span<const Panel> panels);
  // Sorted, after the end.
  RowBest<T> row(int p, int r) const;

 private:
  bool has_slots() const { return w_.slot_scores != nullptr; }
  std::int64_t slots_of(int p) const { return p * kernels::best_slots * strategy_.max_lanes; }
  void begin_slots(int p, const Panel& panel);
  void add_to_slots(int p, const Panel& panel, T* scores, int keys, std::int64_t first);
  void add_to_heaps(int p, const Panel& panel, const T* scores, int keys, std::int64_t first);
  void guess_thresholds(int p, const Panel& panel, const T* scores, int keys);
  void take_from_slots(int p, const Panel& panel, int r);

  const Problem& problem_;
  const Strategy<T>& strategy_;
  Workspace<T>& w_;
};

}  // namespace qkv
