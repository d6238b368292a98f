// attention/block_loop.h: the way of a group of queries through the four stations, block of keys by block of keys.
#pragma once

#include <array>
#include <cstdint>
#include <numbers>
#include <span>

#include "attention/problem.h"
#include "attention/records.h"
#include "attention/sight.h"
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

  std::span<const Panel> panels() const { return group_.panels; }
  std::int64_t head() const { return group_.head; }  // the unit's first
  T* max(int p) const { return w_.max + p * strategy_.max_lanes; }
  T* sum(int p) const { return w_.sum + p * strategy_.max_lanes; }
  T* sums(int p) const { return w_.sums + p * w_.panel_sums; }
  // Whether the masks exclude some pair of the block in hand, for the panel; if so, excluded()[j * lanes + r] is -inf
  // for those.
  bool mark_excluded(int p);
  const T* excluded() const { return w_.shadow; }

  bool started(int p) const { return progress_[static_cast<std::size_t>(p)] != Progress::none; }
  bool finished(int p) const { return progress_[static_cast<std::size_t>(p)] == Progress::finished; }
  T* scores() const { return w_.scores; }

 private:
  using Part = typename Sight<T>::Part;
  enum class Progress : std::uint8_t { none, started, finished };

  void begin(const GroupOf& group, KeyRange keys, Until until, double unit);
  T* queries(int p) const { return w_.queries + p * w_.panel_queries; }

  void pack_queries(int p);
  void compute_scores(int p);
  void edit_scores(int p, int first, int last, bool everything);
  void call_edits(int p, int first, int last) const;
  void set_row_parameters(int p);
  void pool_block(int p, const MutableView& out);
  bool finish_with(kernels::PoolArgs<T>& args, int p, const MutableView& out) const;
  void pool_selected(int p, kernels::PoolArgs<T> args);

  const Problem& problem_;
  const Strategy<T>& strategy_;
  Workspace<T>& w_;
  bool tables_valid_;
  Sight<T> sight_;
  Records<T> records_;
  PanelGroup group_{};
  Until until_ = Until::masked;
  T unit_ = 1;  // scores are multiplied by it; see kernels/block.h
  std::int64_t end_ = 0;
  std::array<Progress, PanelGroup::max_panels> progress_;  // filled for the group in hand
};

}  // namespace qkv
