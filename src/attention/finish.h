// attention/finish.h: from a panel's state to the results of its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/block_loop.h"
#include "attention/problem.h"

namespace qkv {

// A panel's state after all keys; see kernels::WeighArgs and PoolArgs.
template <class T>
struct PanelResult {
  GroupOf of;
  const Panel& panel;
  std::int64_t head;  // the unit's first
  const T *max, *sum;
  const T* sums;
  std::int64_t sum_stride;
  bool started;           // false: no row saw anything, and the state is not filled
  bool finished = false;  // the outputs have been written
};

// Writes the results of rows whose keys have all been seen, with what on_empty says for rows that see none.
template <class T>
class Finish {
 public:
  Finish(const Problem& problem, const Strategy<T>& strategy, const Results& results, Workspace<T>& workspace)
      : problem_(problem), strategy_(strategy), results_(results), w_(workspace) {}

  // out and lse of one panel. Throws OptionError for an empty row with OnEmpty::error.
  void write(const PanelResult<T>& result);

  // Weights and scores of a group of panels, where they were asked for, in a second pass over the keys.
  // max and sum: the panels' states, strategy.max_lanes apart.
  void write_pairs(const GroupOf& group, const T* max, const T* sum);

 private:
  enum class RowKind : std::uint8_t { regular, empty, nan };
  RowKind kind_of(T max, bool started, std::int64_t batch, std::int64_t head, std::int64_t query);
  RowKind write_row(const PanelResult<T>& result, int r, std::int64_t head, std::int64_t query);
  void write_lse(const PanelResult<T>& result, int r, RowKind kind, std::int64_t head, std::int64_t query);
  bool sees_any(std::int64_t batch, std::int64_t head, std::int64_t query);
  void write_empty(std::int64_t batch, std::int64_t head, std::int64_t query);
  void write_out(const T* row, T factor, std::int64_t batch, std::int64_t head, std::int64_t query);
  const T* uniform_value(std::int64_t batch, std::int64_t key_head);
  T empty_weight() const;

  const Problem& problem_;
  const Strategy<T>& strategy_;
  const Results& results_;
  Workspace<T>& w_;
  std::vector<T> uniform_;  // the mean of all values of the (batch, key head) last asked for
  std::int64_t uniform_of_ = -1;
};

}  // namespace qkv
