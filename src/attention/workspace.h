// attention/workspace.h: the memory one thread needs for its tasks, cut from one piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/pairs.h"
#include "attention/problem.h"
#include "attention/strategy.h"
#include "base/aligned.h"
#include "base/divide_up.h"

namespace qkv {

// Pointers into a scratch that a thread keeps from call to call. With `memory` null it only counts.
template <class T>
struct Workspace {
  Workspace(const Problem& problem, const Strategy<T>& s, std::byte* memory) : memory_(memory) {
    const std::int64_t group = s.group_panels, lanes = s.max_lanes;
    const bool masked = problem.mask.has_pairs() || problem.mask.has_ranges();
    const std::int64_t strip = s.panel->strip, strips = divide_up(problem.Dv, strip);
    block = divide_up(s.block_keys, kernels::decode_pad) * kernels::decode_pad;
    panel_queries = lanes * s.query_width(problem);
    panel_sums = s.max_rows * s.value_width(problem);
    queries = take<T>(group * panel_queries);
    sums = take<T>(group * panel_sums);
    for (T** per_row : {&max, &sum}) *per_row = take<T>(group * lanes);
    for (T** per_row : {&rescale, &factors, &row_max, &positions, &slopes, &begins, &ends}) *per_row = take<T>(lanes);
    first = take<std::int64_t>(group * lanes);
    last = take<std::int64_t>(group * lanes);
    scores = take<T>(block * lanes);
    if (!s.keys_direct || masked) keys = take<T>(block * problem.D);
    strip_stride = block * strip;
    if (!s.decode || !s.values_direct || masked) values = take<T>(strips * strip_stride);
    row = take<T>(std::max(s.max_rows * problem.D, problem.Dv));
    if (masked) {
      shadow = take<T>(block * lanes);
      selected_weights = take<T>(block);
      selected_values = take<T>(strips * strip_stride);
      visible = take<std::int32_t>(block + 1);
    }
    if (problem.mask.has_pairs()) {
      pair_rows = take<T>(s.max_rows * block);
      kept = take<bool>(block * lanes);
      blocks = s.share_pairs ? divide_up(problem.Tk, s.block_keys) : 1;
      added = take<T>(group * blocks * block * lanes);
      seen = take<T>(group * blocks * block);
      tables = take<PairTable>(group * blocks);
    }
  }

  std::size_t bytes() const { return used_; }

  std::int64_t block;  // keys of a block, rounded up
  std::int64_t panel_queries, panel_sums;
  std::int64_t strip_stride = 0;  // between strips of values
  std::int64_t blocks = 0;        // tables of pairs that are kept per panel: all blocks of keys, or the one in hand
  T* queries;                     // per panel of the group: packed and scaled
  T* sums;                        // per panel: [rows][value width]
  T *max, *sum;                   // per panel: the state of weigh
  T *rescale, *factors, *row_max, *positions, *slopes, *begins, *ends;  // of the panel in hand, per lane
  std::int64_t *first, *last;                                           // per panel: the range of keys of each row
  T* scores;                                                            // the block in hand
  T *keys = nullptr, *values = nullptr;  // the block's keys and values, where they are not read in place
  T* row;                                // one panel's rows in plain order
  T* shadow = nullptr;                   // which pairs of the block are excluded
  T *selected_weights = nullptr, *selected_values = nullptr;  // of the keys that one row sees
  std::int32_t* visible = nullptr;                            // which keys of the block anybody sees
  T* pair_rows = nullptr;
  bool* kept = nullptr;
  T *added = nullptr, *seen = nullptr;  // per panel and table: what masks add, which keys anybody sees
  PairTable* tables = nullptr;

 private:
  template <class U>
  U* take(std::int64_t count) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(U) + alignment - 1) / alignment * alignment;
    return reinterpret_cast<U*>(at);
  }

  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace qkv
