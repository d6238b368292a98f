// attention/sight.h: what the panels of a group see of the keys, by all masks together.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "attention/pairs.h"
#include "attention/problem.h"
#include "attention/strategy.h"
#include "attention/workspace.h"

namespace qkv {

// Panels of one unit that share each block of keys.
struct PanelGroup {
  static constexpr int max_panels = 16;

  std::int64_t batch;
  std::int64_t head;  // the unit's first
  std::span<const Panel> panels;

  int count() const { return static_cast<int>(panels.size()); }
  const Panel& panel(int p) const { return panels[static_cast<std::size_t>(p)]; }
};

// Blocks are classified once: skipped, seen whole, or partly seen.
template <class T>
class Sight {
 public:
  // A panel's ranges of keys, summed up.
  struct Ranges {
    std::int64_t min_first, max_first, min_last, max_last;  // of rows that see something
    bool empty_rows;                                        // some row sees nothing
    bool gaps;                                              // the rows' ranges together may leave keys out
    bool rising;                                            // no row's range begins or ends before the one before
  };
  // A panel's share of the block in hand.
  struct Part {
    bool skip;
    std::int64_t first;
    int keys;
    bool limited;  // some row does not see all of it, by its range
    PairTable table;
    PairTarget<T> pairs;  // what the table points to
    bool excludes() const { return limited || table.excludes; }
  };

  Sight(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace)
      : problem_(problem), strategy_(strategy), w_(workspace) {}

  // A group, and the keys it may see at all. Without masks it sees all of them. `unit` is what biases are multiplied
  // by, 0 where only what they exclude counts; tables_valid says that the workspace has the tables of pairs of these
  // panels.
  void begin(const PanelGroup& group, KeyRange keys, bool masked, T unit, bool tables_valid);

  // The keys that any panel may see.
  KeyRange all() const;
  const Ranges& ranges(int p) const { return ranges_[static_cast<std::size_t>(p)]; }
  // A row's range of keys; filled where there are masks.
  const std::int64_t* first(int p) const { return w_.first + p * strategy_.max_lanes; }
  const std::int64_t* last(int p) const { return w_.last + p * strategy_.max_lanes; }

  // Takes a block in hand and says of every panel what it sees of it; false if none sees anything.
  bool look_at(std::int64_t first, std::int64_t last);
  const Part& part(int p) const { return parts_[static_cast<std::size_t>(p)]; }
  KeyRange block() const { return block_; }  // the keys that any panel sees of it
  bool excludes() const;                     // some pair of it
  // Whether keys of it are excluded for all rows of the group; if so, visible[key - block().first] is 0 for those.
  bool find_gaps();

 private:
  void find_ranges(int p, KeyRange keys);
  bool find_rising_ranges(int p, KeyRange keys);
  Part classify(int p, std::int64_t first, std::int64_t last);

  const Problem& problem_;
  const Strategy<T>& strategy_;
  Workspace<T>& w_;
  PanelGroup group_{};
  bool masked_ = true;
  T unit_ = 1;
  KeyRange block_{};
  // Filled for the group in hand; not before, because a call may be small.
  std::array<Ranges, PanelGroup::max_panels> ranges_;
  std::array<Part, PanelGroup::max_panels> parts_;
};

}  // namespace qkv
