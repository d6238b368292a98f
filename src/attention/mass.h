// attention/mass.h: what each key gets from all queries of a head: the sums of the columns of the weights.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "attention/strategy.h"
#include "attention/workspace.h"

namespace qkv {

// Keeps the weights of a group of panels, block by block, until the rows' sums are known; then adds up their columns.
// A second pass over the keys would cost half of the whole again. Only for panels.
//
// Masses are summed for a run of groups, in partial sums per lane, and folded at its end.
template <class T>
class Mass {
 public:
  Mass(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace)
      : problem_(problem), strategy_(strategy), w_(workspace) {}

  void begin_run();              // of groups
  void begin_group(int panels);  // forgets the blocks of the group before

  // Where panel p's scores of the block that starts at key `block` go, and where its weights stay.
  T* block(int p, std::int64_t block) const;
  // They are weights now: of keys first, ... first + keys - 1, relative to the maxima `max`, per lane.
  void keep(int p, std::int64_t block, std::int64_t first, int keys, int lanes, const T* max);

  // All blocks of panel p are in: its rows' maxima, and the factor of each row's weights.
  void add_panel(int p, int lanes, const T* max, const T* factors);
  // NaN for every key whose weight in row r of panel p is not 0.
  void add_nan_row(int p, int lanes, int r);
  // The same weight for every key.
  void add_everywhere(T weight) { everywhere_ += weight; }
  void add(std::int64_t key, T weight) { w_.mass[key * strategy_.vector] += weight; }

  // The masses of the run.
  void end_run(T* masses) const;

 private:
  std::int64_t at(int p, std::int64_t block) const { return p * w_.mass_blocks + block / strategy_.block_keys; }

  const Problem& problem_;
  const Strategy<T>& strategy_;
  Workspace<T>& w_;
  T everywhere_ = 0;
};

}  // namespace qkv
