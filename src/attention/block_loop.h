// attention/block_loop.h: the way of a group of queries through the four stations, block of keys by block of keys.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "attention/mass.h"
#include "attention/problem.h"
#include "attention/records.h"
#include "attention/selection.h"
#include "attention/sight.h"
#include "attention/strategy.h"
#include "attention/workspace.h"
#include "base/function_ref.h"

namespace qkv {

kernels::DistanceKernel distance_kernel(Score::Kind kind);

// Which panels of which unit.
struct GroupOf {
  std::int64_t batch, unit, group;
};

template <class T>
class BlockGradients;
template <class T>
class BlockTangents;
template <class T>
class EditDerivatives;

// score -> mask -> weigh -> pool for one group of panels over a range of keys. Blocks are classified once, from all
// masks together: skipped, seen whole, or partly seen. Excluded keys and values are neither computed with nor read.
template <class T>
class BlockLoop {
 public:
  // How far the scores of a block are taken; see ScoreStage. Up to `capped` there are no masks.
  enum class Until : std::uint8_t { scaled, capped, masked };

  BlockLoop(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace, bool tables_valid = false);

  // Packs the group's queries and finds their ranges of keys within `keys`; the scores will be weighed.
  void begin(const GroupOf& group, KeyRange keys) { begin(group, keys, Until::masked, false); }
  // The same for scores that somebody wants to see.
  void begin_scores(const GroupOf& group, KeyRange keys, Until until) { begin(group, keys, until, true); }

  // The whole pass: afterwards max(p), sum(p), sums(p), entropy(p) and best(p, r) hold panel p's state. With `out`, of
  // shape [B, H, Tq, Dv], panels whose last block makes that possible get their outputs on the way; finished(p) says
  // which. With `mass`, weights are kept for it.
  void pool_all(const MutableView& out = {}, Mass<T>* mass = nullptr);

  // Calls visit(panel, first key, keys) for every block in which a panel that is wanted sees something; scores() then
  // holds the block's scores.
  void visit_scores(FunctionRef<bool(int panel)> wanted,
                    FunctionRef<void(int panel, std::int64_t first, int keys)> visit);

  std::span<const Panel> panels() const { return group_.panels; }
  std::int64_t head() const { return group_.head; }  // the unit's first
  T* max(int p) const { return w_.max + p * strategy_.max_lanes; }
  T* sum(int p) const { return w_.sum + p * strategy_.max_lanes; }
  T* sums(int p) const { return w_.sums + p * w_.panel_sums; }
  T* entropy(int p) const { return w_.entropy == nullptr ? nullptr : w_.entropy + p * strategy_.max_lanes; }
  RowBest<T> best(int p, int r) const { return selection_.row(p, r); }
  // Whether the masks exclude some pair of the block in hand, for the panel; if so, excluded()[j * lanes + r] is -inf
  // for those.
  bool mark_excluded(int p);
  const T* excluded() const { return w_.shadow; }

  // The keys of the panel's part that every row of it sees by its range, counted from the part's first, in whole tiles.
  struct Whole {
    int first, last;
  };
  Whole seen_by_all(int p) const;

  bool started(int p) const { return progress_[static_cast<std::size_t>(p)] != Progress::none; }
  bool finished(int p) const { return progress_[static_cast<std::size_t>(p)] == Progress::finished; }
  T* scores() const { return scores_; }
  // Turns the block's scores into weights, relative to the running maxima max(p).
  void weigh(int p);

 private:
  // The way back through the same stations, and small changes on their way forward.
  friend class BlockGradients<T>;
  friend class BlockTangents<T>;
  friend class EditDerivatives<T>;
  using Part = typename Sight<T>::Part;
  enum class Progress : std::uint8_t { none, started, finished };

  void begin(const GroupOf& group, KeyRange keys, Until until, bool to_be_seen);
  T* queries(int p) const { return w_.queries + p * w_.panel_queries; }
  bool exclusion_only() const { return problem_.weighing.exclusion_only && !to_be_seen_; }
  bool linear() const { return problem_.weighing.family == Family::linear && !to_be_seen_; }
  // Takes every block in hand in which the group sees something.
  void walk(FunctionRef<void(std::int64_t block)> visit);
  // Fetches its keys, and its values where they are wanted, and calls work(panel, first key of the block) for every
  // panel that sees something of it.
  void for_each_block(bool values, FunctionRef<void(int panel, std::int64_t block)> work);

  void pack_queries(int p);
  void transpose_rows(const View& view, int p, std::int64_t width, T scale, T* target) const;
  void set_score_parameters();
  void compute_scores(int p);
  // Of some of the panel's vectors only, where `some` is not empty: of dot products.
  struct Lanes {
    int first = 0, last = 0;
    bool operator==(const Lanes&) const = default;
  };
  void score(int p, int first, int last, T* row_max, bool with_pairs = false, Lanes some = {});
  void score_edge(int p, int first, int last);
  void squared_distances(int p);
  void call_score(int p, int first, int last) const;
  void edit_scores(int p, int first, int last, bool everything);
  void call_edits(int p, int first, int last) const;
  std::span<T> scores_of(int p, int first, int last) const;
  ScoreBlock<T> block_of_head(int p, int h, int first, int last) const;
  void to_unit(std::span<T> scores) const;
  void set_row_parameters(int p);
  void pool_block(int p, const MutableView& out);
  void drop_weights(int p);
  void drop(int p, T* weights);
  bool finish_with(kernels::PoolArgs<T>& args, int p, const MutableView& out) const;
  void pool_selected(int p, kernels::PoolArgs<T> args);

  const Problem& problem_;
  const Strategy<T>& strategy_;
  Workspace<T>& w_;
  bool tables_valid_;
  Sight<T> sight_;
  Records<T> records_;
  Selection<T> selection_;
  PanelGroup group_{};
  const typename Strategy<T>::Way* way_ = nullptr;
  Until until_ = Until::masked;
  bool to_be_seen_ = false;  // scores are wanted, not weights
  T* scores_ = nullptr;      // the block in hand
  kernels::Ahead ahead_;     // what the tiles of the panel in hand ask for
  T hidden_sum_ = 0;
  const T* per_coordinate_ = nullptr;
  T unit_ = 1;  // scores are multiplied by it; see kernels/block.h
  std::int64_t end_ = 0;
  std::array<Progress, PanelGroup::max_panels> progress_;  // filled for the group in hand
};

}  // namespace qkv
