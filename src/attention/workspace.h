// attention/workspace.h: the memory one thread needs for its tasks, cut from one piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "attention/pairs.h"
#include "attention/problem.h"
#include "attention/strategy.h"
#include "base/carver.h"
#include "base/divide_up.h"

namespace qkv {

// Pointers into a scratch that a thread keeps from call to call. With `memory` null it only counts.
template <class T>
struct Workspace {
  Workspace(const Problem& problem, const Strategy<T>& s, std::byte* memory) {
    Carver carver(memory);
    const std::int64_t group = s.group_panels, lanes = s.max_lanes;
    const bool masked = problem.mask.has_pairs() || problem.mask.has_ranges() || problem.weighing.compact;
    const std::int64_t strip = s.panel->strip, strips = divide_up(problem.Dv, strip);
    block = s.padded_block();
    const Weighing& weighing = problem.weighing;
    const std::int64_t width = s.scoring->max_width();
    panel_queries = lanes * s.max_query_width();
    panel_sums = s.max_rows * s.value_width(problem);
    queries = carver.take<T>(group * panel_queries);
    sums = carver.take<T>(group * panel_sums);
    for (T** per_row : {&max, &sum}) *per_row = carver.take<T>(group * lanes);
    if (problem.want_entropy || problem.want_effective) entropy = carver.take<T>(group * lanes);
    for (T** per_row : {&rescale, &factors, &row_max, &positions, &slopes, &begins, &ends, &per_row_scale}) {
      *per_row = carver.take<T>(lanes);
    }
    hidden = carver.take<T>(s.scoring->parameters->hidden_width());
    if (weighing.kept > 0) {
      best_scores = carver.take<T>(group * lanes * weighing.kept);
      best_indices = carver.take<std::int64_t>(group * lanes * weighing.kept);
      best_counts = carver.take<std::int32_t>(group * lanes);
      if (weighing.kept <= kernels::best_slots && problem.Tk <= std::numeric_limits<kernels::KeyIndex<T>>::max()) {
        slot_scores = carver.take<T>(group * kernels::best_slots * lanes);
        slot_indices = carver.take<kernels::KeyIndex<T>>(group * kernels::best_slots * lanes);
        marks = carver.take<kernels::MarkWord<T>>((block + 1) * s.vector);
        queue = carver.take<T>((block + 3) * s.vector);
        queue_numbers = carver.take<kernels::KeyIndex<T>>((block + 3) * s.vector);
      } else {
        thresholds = carver.take<T>(group * lanes);
        places = carver.take<std::int32_t>(block * lanes);
      }
    }
    if (problem.dropping.threshold != 0) row_keys = carver.take<std::uint64_t>(lanes);
    if (problem.want_mass && !s.decode && weighing.family != Family::selection) {
      mass_blocks = divide_up(problem.Tk, s.block_keys);
      mass_weights = carver.take<T>(group * mass_blocks * block * lanes);
      mass_references = carver.take<T>(group * mass_blocks * lanes);
      mass_spans = carver.take<KeyRange>(group * mass_blocks);
    }
    if (problem.want_mass && !s.decode) mass = carver.take<T>(problem.Tk * s.vector);
    first = carver.take<std::int64_t>(group * lanes);
    last = carver.take<std::int64_t>(group * lanes);
    scores = carver.take<T>(block * lanes);
    if (s.scores_by_rows()) row_scores = carver.take<T>(block * kernels::decode_rows);
    const bool direct = s.usual.direct && (s.scoring->needs_exact.empty() || s.exact.direct);
    if (!direct || masked) keys = carver.take<T>(block * width);
    strip_stride = block * strip;
    if (!s.decode || !s.values_direct || masked) values = carver.take<T>(strips * strip_stride);
    row = carver.take<T>(s.max_rows * std::max(width, problem.Dv));
    if (masked) {
      shadow = carver.take<T>(block * lanes);
      selected_weights = carver.take<T>(block);
      selected_values = carver.take<T>(strips * strip_stride);
      visible = carver.take<std::int32_t>(block + 1);
    }
    if (problem.mask.has_pairs()) {
      pair_rows = carver.take<T>(s.max_rows * block);
      kept = carver.take<bool>(block * lanes);
      blocks = s.share_pairs ? divide_up(problem.Tk, s.block_keys) : 1;
      if (s.pair_numbers) added = carver.take<T>(group * blocks * block * lanes);
      if (s.pair_bits) excluded = carver.take<kernels::RowBits>(group * blocks * block);
      seen = carver.take<T>(group * blocks * block);
      tables = carver.take<PairTable>(group * blocks);
    }
    bytes = carver.bytes();
  }

  std::size_t bytes;   // of all of it
  std::int64_t block;  // keys of a block, rounded up
  std::int64_t panel_queries, panel_sums;
  std::int64_t strip_stride = 0;  // between strips of values
  std::int64_t blocks = 0;        // tables of pairs that are kept per panel: all blocks of keys, or the one in hand
  T* queries;                     // per panel of the group: packed and scaled
  T* sums;                        // per panel: [rows][value width]
  T *max, *sum;                   // per panel: the state of weigh
  T* entropy = nullptr;           // per panel: the same
  T *rescale, *factors, *row_max, *positions, *slopes, *begins, *ends,
      *per_row_scale;        // of the panel in hand, per lane
  T* hidden;                 // additive's weights, in the unit of scores
  T* best_scores = nullptr;  // per panel and row: see Selection
  std::int64_t* best_indices = nullptr;
  std::int32_t* best_counts = nullptr;
  // Few are kept in slots, per panel, and the others are of the block in hand: see kernels::KeepArgs.
  T *slot_scores = nullptr, *queue = nullptr;
  kernels::KeyIndex<T>*slot_indices = nullptr, *queue_numbers = nullptr;
  kernels::MarkWord<T>* marks = nullptr;
  // More in heaps.
  T* thresholds = nullptr;  // per panel and row
  std::int32_t* places = nullptr;
  std::uint64_t* row_keys = nullptr;  // of the panel in hand: see kernels::DropArgs
  std::int64_t mass_blocks = 0;       // see Mass
  T *mass_weights = nullptr, *mass_references = nullptr, *mass = nullptr;
  KeyRange* mass_spans = nullptr;
  std::int64_t *first, *last;            // per panel: the range of keys of each row
  T* scores;                             // the block in hand
  T* row_scores = nullptr;               // the same before its rows are spread over the lanes
  T *keys = nullptr, *values = nullptr;  // the block's keys and values, where they are not read in place
  T* row;                                // one panel's rows in plain order
  T* shadow = nullptr;                   // which pairs of the block are excluded
  T *selected_weights = nullptr, *selected_values = nullptr;  // of the keys that one row sees
  std::int32_t* visible = nullptr;                            // which keys of the block anybody sees
  T* pair_rows = nullptr;
  bool* kept = nullptr;
  // Per panel and table: see PairTarget.
  T *added = nullptr, *seen = nullptr;
  kernels::RowBits* excluded = nullptr;
  PairTable* tables = nullptr;
};

}  // namespace qkv
