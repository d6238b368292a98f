// attention/finish.h: from a panel's state to the results of its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/block_loop.h"
#include "attention/mass.h"
#include "attention/problem.h"
#include "attention/row_sight.h"

namespace qkv {

// A panel's state after all keys; see kernels::WeighArgs and PoolArgs. Per row, from row 0 on.
template <class T>
struct PanelResult {
  std::int64_t batch;
  const Panel& panel;
  std::int64_t head;  // the unit's first
  const T *max, *sum;
  const T* entropy;  // null: not asked for
  RowBest<T> best;   // of row 0; the others follow
  const T* sums;
  std::int64_t sum_stride;
  bool started;           // false: no row saw anything, and the sums are not filled
  bool finished = false;  // the outputs have been written

  RowBest<T> best_of(int r) const {
    if (best.room == 0) return best;
    const std::int64_t at = r * best.room;
    return {best.scores + at, best.indices + at, best.count + r, best.room};
  }
  RowOf row(int r) const { return row_of(panel, r, batch, head); }
};

// Writes the results of rows whose keys have all been seen, with what on_empty says for rows that see none.
template <class T>
class Finish {
 public:
  Finish(const Problem& problem, const Strategy<T>& strategy, const Results& results, Workspace<T>& workspace)
      : problem_(problem),
        strategy_(strategy),
        results_(results),
        w_(workspace),
        sight_(problem, strategy, workspace) {}

  // All results of one panel but those of write_pairs. Throws OptionError for an empty row with OnEmpty::error.
  // `mass` is null where masses were not asked for, or are found by write_pairs.
  void write(const PanelResult<T>& result, int p, Mass<T>* mass);

  // Whether some results need a second pass over the keys.
  bool needs_pairs() const;
  // Weights and scores of a group of panels, and what keys get in decode, where they were asked for. max and sum: the
  // panels' states, strategy.max_lanes apart, not in the workspace.
  void write_pairs(const GroupOf& group, const T* max, const T* sum);

 private:
  enum class RowKind : std::uint8_t { regular, empty, nan };
  // What a row's weights are, beyond its pooled values.
  struct RowNumbers {
    double lse, entropy;
    T factor;
  };

  RowKind kind_of(T max, T sum, bool started, const RowOf& row) const;
  RowKind kind_of(RowBest<T>& best, bool started, const RowOf& row) const;
  void complete(RowBest<T>& best, const RowOf& row) const;
  RowNumbers numbers(const PanelResult<T>& result, int r) const;
  RowNumbers weigh_best(const RowBest<T>& best);
  T dropped(const RowOf& row, std::int64_t key) const;
  void find_powers(const PanelResult<T>& result);
  void write_selected(const RowBest<T>& best, T factor, const RowOf& row, Mass<T>* mass);
  void write_numbers(const PanelResult<T>& result, int r, const RowOf& row, RowKind kind, const RowNumbers& numbers);
  void write_top(const RowBest<T>& best, int r, const RowOf& row, RowKind kind, T factor);
  void write_chosen(const RowBest<T>& best, RowKind kind, const RowOf& row) const;
  void add_mass(const PanelResult<T>& result, int p, Mass<T>& mass);
  void write_empty(const RowOf& row, Mass<T>* mass);
  void write_out(const T* values, T factor, const RowOf& row);
  const T* uniform_value(std::int64_t batch, std::int64_t key_head);
  T empty_weight() const;

  // Whole rows of pairs; for all rows or for those that were chosen.
  void fill_row(const MutableView& view, const RowOf& row, std::int64_t at, T value) const;
  template <class Each>
  void for_each_weights_row(const RowOf& row, Each each) const;
  bool all_weights() const;
  bool some_weights() const;
  bool weights_of(const Panel& panel) const;
  void write_scores(const GroupOf& group);
  void write_weights(const GroupOf& group, const T* max, const T* sum);
  void add_to_mass(const RowOf& row, std::int64_t key, T weight) const;

  const Problem& problem_;
  const Strategy<T>& strategy_;
  const Results& results_;
  Workspace<T>& w_;
  RowSight<T> sight_;
  std::vector<RowKind> kinds_;                 // of the panel in hand
  std::vector<T> powers_;                      // the same: 2^(best score - max), want_top per row
  std::vector<T> best_weights_, sum_, value_;  // of the row in hand
  std::vector<T> uniform_;                     // the mean of all values of the (batch, key head) last asked for
  std::int64_t uniform_of_ = -1;
};

// Calls each(view, row) for the rows of results that get this row's weights.
template <class T>
template <class Each>
void Finish<T>::for_each_weights_row(const RowOf& row, Each each) const {
  if (results_.weights) each(results_.weights, row.query);
  if (!results_.row_weights) return;
  for (std::size_t i = 0; i < problem_.want_rows.size(); ++i) {
    if (problem_.want_rows[i] == row.query) each(results_.row_weights, static_cast<std::int64_t>(i));
  }
}

}  // namespace qkv
