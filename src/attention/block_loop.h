// attention/block_loop.h: the way of a group of queries through the four stations, block of keys by block of keys.
#pragma once

#include <array>
#include <cstdint>
#include <numbers>
#include <span>

#include "attention/problem.h"
#include "attention/strategy.h"
#include "attention/workspace.h"
#include "base/function_ref.h"

namespace qkv {

// Which panels of which unit.
struct GroupOf {
  std::int64_t batch, unit, group;
};

// score -> mask -> weigh -> pool for one group of panels over a range of keys. Blocks are classified once, from all
// masks together: skipped, seen whole, or partly seen. Excluded keys and values are neither computed with nor read.
template <class T>
class BlockLoop {
 public:
  static constexpr int max_panels = 16;

  // How far the scores of a block are taken; see ScoreStage. Up to `capped` there are no masks.
  enum class Until : std::uint8_t { scaled, capped, masked };

  BlockLoop(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace, bool tables_valid = false);

  // Packs the group's queries and finds their ranges of keys within `keys`; the scores will be weighed.
  void begin(const GroupOf& group, KeyRange keys) { begin(group, keys, Until::masked, std::numbers::log2e); }
  // The same for scores that somebody wants to see.
  void begin_scores(const GroupOf& group, KeyRange keys, Until until) { begin(group, keys, until, 1); }

  // The whole pass: afterwards max(p), sum(p) and sums(p) hold panel p's state. With `out`, of shape [B, H, Tq, Dv],
  // panels whose last block makes that possible get their outputs on the way; finished(p) says which.
  void pool_all(const MutableView& out = {});

  // Calls visit(panel, first key, keys) for every block in which the panel sees something; scores() then holds the
  // block's scores.
  void visit_scores(FunctionRef<void(int panel, std::int64_t first, int keys)> visit);

  std::span<const Panel> panels() const { return panels_; }
  std::int64_t head() const { return group_.unit * strategy_.unit_heads; }  // the unit's first
  T* max(int p) const { return w_.max + p * strategy_.max_lanes; }
  T* sum(int p) const { return w_.sum + p * strategy_.max_lanes; }
  T* sums(int p) const { return w_.sums + p * w_.panel_sums; }
  // Whether the masks exclude some pair of the block in hand, for the panel; if so, excluded()[j * lanes + r] is -inf
  // for those.
  bool mark_excluded(int p);
  const T* excluded() const { return w_.shadow; }

  bool started(int p) const { return states_[static_cast<std::size_t>(p)].started; }
  bool finished(int p) const { return states_[static_cast<std::size_t>(p)].finished; }
  T* scores() const { return w_.scores; }

 private:
  // A panel's ranges of keys, summed up.
  struct PanelState {
    bool started, finished;
    std::int64_t min_first, max_first, min_last, max_last;  // the minima and maxima are of rows that see something
    bool empty_rows;                                        // some row sees nothing
    bool gaps;                                              // the rows' ranges together may leave keys out
  };
  // A panel's share of the block in hand.
  struct Part {
    bool skip;
    std::int64_t first;
    int keys;
    bool limited;  // some row does not see all of it, by its range
    PairTable table;
    const T *added, *seen;
    bool excludes() const { return limited || table.excludes; }
  };
  // Rows of the block in hand, wherever they are.
  struct Rows {
    const void* data;
    std::ptrdiff_t stride;  // in elements
    bool staged;
  };

  void begin(const GroupOf& group, KeyRange keys, Until until, double unit);
  const std::int64_t* first(int p) const { return w_.first + p * strategy_.max_lanes; }
  const std::int64_t* last(int p) const { return w_.last + p * strategy_.max_lanes; }
  T* queries(int p) const { return w_.queries + p * w_.panel_queries; }

  void pack_queries(int p);
  void find_ranges(int p, KeyRange keys);
  bool classify(std::int64_t first, std::int64_t last);
  Part classify_panel(int p, std::int64_t first, std::int64_t last);
  bool find_gaps();
  void fetch(bool gaps);
  void stage(const View& view, bool gaps,
             FunctionRef<void(std::int64_t row, std::int64_t count, const T* rows, std::ptrdiff_t stride)> keep) const;
  void compute_scores(int p);
  void edit_scores(int p, int first, int last, bool everything);
  void call_edit(const mask_part::EditBy& edit, int p, int first, int last) const;
  void set_row_parameters(int p, std::int64_t first);
  bool values_finite();
  void pool_block(int p, const MutableView& out);
  bool finish_with(kernels::PoolArgs<T>& args, int p, const MutableView& out) const;
  void pool_selected(int p, kernels::PoolArgs<T> args);

  const Problem& problem_;
  const Strategy<T>& strategy_;
  Workspace<T>& w_;
  bool tables_valid_;
  GroupOf group_{};
  Until until_ = Until::masked;
  T unit_ = 1;  // scores are multiplied by it; see kernels/block.h
  std::int64_t end_ = 0;
  std::span<const Panel> panels_;
  // Filled for the group in hand; not before, because a call may be small.
  std::array<PanelState, max_panels> states_;
  std::array<Part, max_panels> parts_;

  // The block in hand.
  std::int64_t block_first_ = 0, block_last_ = 0;  // keys that any panel sees
  Rows keys_{}, values_{};
  enum class Finite : std::uint8_t { unknown, yes, no } finite_ = Finite::unknown;
};

}  // namespace qkv
