// attention/strategy.h: which kernel serves a call, and how the call is cut into panels, blocks and tasks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/problem.h"
#include "attention/scoring.h"
#include "base/divide_up.h"
#include "kernels/block.h"
#include "kernels/gradients.h"
#include "kernels/rows.h"

namespace qkv {

// Some queries of some neighbouring heads that share a key head; together the rows of one block of scores.
// Row r is query first_query + r % queries of head first_head + r / queries.
struct Panel {
  std::int64_t first_head;  // counted from the unit's first head
  std::int64_t first_query;
  int heads, queries;
  int lanes;  // rows rounded up to what the kernel takes
  int rows() const { return heads * queries; }
};

// Row r of a panel of a unit, whose first head is given.
inline RowOf row_of(const Panel& panel, int r, std::int64_t batch, std::int64_t first_head) {
  return {batch, first_head + panel.first_head + r / panel.queries, panel.first_query + r % panel.queries};
}

// A *unit* is what has the same panels: a query head (panel kernel) or a key head with all its query heads (decode).
// A *group* is a run of panels that share each block of keys while it is in the cache.
// A *task* is one group of one unit, over one *chunk* of the keys; nothing in it depends on other tasks.
template <class T>
struct Strategy {
  // The kernels of the instruction set that was current when the call began; all of the call uses them.
  const kernels::PanelKernels<T>* panel;
  const kernels::EditKernels<T>* edits;
  const kernels::RowKernels<T>* rows;
  const kernels::WeighKernels<T>* weighs;
  const kernels::BestKernels<T>* best;
  bool decode;
  int vector;      // lanes of a vector
  int block_keys;  // keys in a block; blocks start at multiples of it
  int group_panels;
  std::int64_t chunk_keys;  // keys in a chunk; all of them in the panel kernel
  std::vector<Panel> panels;
  int max_lanes;  // of all panels, at least a vector
  int max_rows;
  std::int64_t units, unit_heads, groups, chunks;
  std::int64_t run_groups;  // groups that are one task, one after the other: several where masses are added up

  // Keys and values are read where they lie if that is possible and quick ("direct"); otherwise, or where a block has
  // keys that must not be read, its rows are copied as T ("staged").
  struct Way {
    const ScoreWay* score;
    bool direct;
    void (*kernel)(const kernels::ScoreArgs<T>&);  // null: the function given to score_by
    void (*staged)(const kernels::ScoreArgs<T>&);
    // Few rows of a panel are scored as decode scores them: lanes would be wasted, and the additive score is dear.
    bool by_rows = false;
  };
  const kernels::GradientKernels<T>* gradients;
  const Scoring* scoring;
  Way usual, exact;  // see Scoring
  bool values_direct;
  void (*weigh)(const kernels::WeighArgs<T>&);
  void (*pool)(const kernels::PoolArgs<T>&);
  void (*pool_staged)(const kernels::PoolArgs<T>&);

  bool hints;  // the cache is told what comes next; see ahead.h

  // Heads fastest where a table of pairs is shared by heads, so that it is put in panel order once for all of them.
  bool share_pairs;
  // Tables of pairs where nothing is added are bits; there are others, with numbers.
  bool pair_bits, pair_numbers;
  bool far_tables;  // those that are shared are several times the second-level cache

  std::span<const Panel> panels_of(std::int64_t group) const {
    const auto from = std::span(panels).subspan(static_cast<std::size_t>(group * group_panels));
    return from.first(std::min(from.size(), static_cast<std::size_t>(group_panels)));
  }
  // Of panels that are queries of one head.
  KeyRange queries_of(std::int64_t group) const {
    const auto of_group = panels_of(group);
    return {of_group.front().first_query, of_group.back().first_query + of_group.back().queries};
  }
  std::int64_t runs() const { return divide_up(groups, run_groups); }  // of groups, per unit
  std::int64_t tasks(const Problem& problem) const { return problem.B * units * runs() * chunks; }
  bool scores_by_rows() const { return usual.by_rows || exact.by_rows; }
  std::int64_t padded_block() const { return divide_up(block_keys, kernels::decode_pad) * kernels::decode_pad; }
  std::int64_t query_width(const ScoreWay& way) const { return rounded(way.width); }
  std::int64_t max_query_width() const { return rounded(scoring->max_width()); }
  std::int64_t value_width(const Problem& problem) const { return rounded(problem.Dv); }

 private:
  std::int64_t rounded(std::int64_t width) const { return (width + vector - 1) / vector * vector; }
};

// The choice depends on Tq, the widths, dtypes, options and the instruction set; never on B, H, Tk, lengths or threads,
// so that a sequence's result does not depend on what else is in the call. Three things are free, for no bit depends on
// them: the size of groups where no sums of weights are kept, whether rows are copied, and hints.
// `scoring` must outlive it. The passes after the forward one take panels for any number of queries; that of rates
// needs queries in panels, too.
enum class Pass : std::uint8_t { forward, backward, rates };
template <class T>
Strategy<T> choose_strategy(const Problem& problem, const Scoring& scoring, Pass pass = Pass::forward);

}  // namespace qkv
