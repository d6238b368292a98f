// attention/block_loop.cpp: the loop over blocks of keys.
#include "attention/block_loop.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "attention/ahead.h"
#include "attention/load.h"
#include "base/divide_up.h"
#include "base/numbers.h"
#include "kernels/processor.h"

namespace qkv {

template <class T>
BlockLoop<T>::BlockLoop(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace, bool tables_valid)
    : problem_(problem),
      strategy_(strategy),
      w_(workspace),
      tables_valid_(tables_valid),
      sight_(problem, strategy, workspace),
      records_(problem, strategy, workspace),
      selection_(problem, strategy, workspace),
      scores_(workspace.scores) {}

template <class T>
void BlockLoop<T>::begin(const GroupOf& group, KeyRange keys, Until until, bool to_be_seen) {
  const Weighing& weighing = problem_.weighing;
  until_ = until;
  to_be_seen_ = to_be_seen;
  unit_ = to_be_seen ? T(1) : static_cast<T>(weighing.unit);
  end_ = keys.last;
  scores_ = w_.scores;
  group_ = {group.batch, group.unit * strategy_.unit_heads, strategy_.panels_of(group.group)};
  way_ = nullptr;
  if (!exclusion_only()) {
    const ScoreWay& way = strategy_.scoring->way(group.batch, group_.head, problem_.H);
    way_ = &way == strategy_.exact.score ? &strategy_.exact : &strategy_.usual;
    set_score_parameters();
  }
  for (int p = 0; p < group_.count(); ++p) {
    if (way_ != nullptr) pack_queries(p);
    progress_[static_cast<std::size_t>(p)] = Progress::none;
    std::fill_n(max(p), strategy_.max_lanes, weighing.family == Family::linear ? T(0) : -infinity<T>);
    std::fill_n(sum(p), strategy_.max_lanes, T(0));
    if (entropy(p) != nullptr) std::fill_n(entropy(p), strategy_.max_lanes, T(0));
  }
  if (weighing.kept > 0 && !to_be_seen) selection_.begin(group_.panels);
  sight_.begin(group_, keys, until == Until::masked, exclusion_only() ? T(0) : unit_, tables_valid_);
}

template <class T>
void BlockLoop<T>::pack_queries(int p) {
  const Panel& panel = group_.panel(p);
  const ScoreWay& way = *way_->score;
  const View& q = way.q;
  const std::int64_t D = way.width;
  const T scale = way.kind == ScoreWay::Kind::dot ? static_cast<T>(way.scale * static_cast<double>(unit_)) : T(1);
  const auto offset = [&](int r) { return place(q, row_of(panel, r, group_.batch, head())); };
  if (strategy_.decode || way_->by_rows || way.kind == ScoreWay::Kind::yours) {
    const std::int64_t width = strategy_.query_width(way);
    std::fill_n(queries(p), panel.lanes * width, T(0));
    for (int r = 0; r < panel.rows(); ++r) {
      load_row(q, offset(r), q.stride(3), D, w_.row);
      strategy_.rows->scale(w_.row, static_cast<int>(D), scale, queries(p) + r * width);
    }
    return;
  }
  transpose_rows(q, p, D, scale, queries(p));
}

// A panel's rows of a view, `width` columns of each: target[c * lanes + r].
template <class T>
void BlockLoop<T>::transpose_rows(const View& view, int p, std::int64_t width, T scale, T* target) const {
  const Panel& panel = group_.panel(p);
  const auto offset = [&](int r) { return place(view, row_of(panel, r, group_.batch, head())); };
  const bool direct = view.dtype() == dtype_of<T> && view.stride(3) == 1;
  for (int r = 0; r < panel.rows() && !direct; ++r) {
    load_row(view, offset(r), view.stride(3), width, w_.row + r * width);
  }
  strategy_.panel->transpose({direct ? view.as<T>() + offset(0) : w_.row, direct ? view.stride(2) : width, panel.rows(),
                              static_cast<int>(width), scale, target, panel.lanes});
}

template <class T>
void BlockLoop<T>::pool_all(const MutableView& out, Mass<T>* mass) {
  for_each_block(problem_.weighing.family != Family::selection, [&](int p, std::int64_t block) {
    if (mass != nullptr) scores_ = mass->block(p, block);
    compute_scores(p);
    pool_block(p, out);
    if (mass != nullptr) mass->keep(p, block, sight_.part(p).first, sight_.part(p).keys, group_.panel(p).lanes, max(p));
  });
  if (problem_.weighing.kept > 0) selection_.end(group_.panels);
}

template <class T>
void BlockLoop<T>::visit_scores(FunctionRef<bool(int)> wanted, FunctionRef<void(int, std::int64_t, int)> visit) {
  for_each_block(false, [&](int p, std::int64_t) {
    if (!wanted(p)) return;
    compute_scores(p);
    visit(p, sight_.part(p).first, sight_.part(p).keys);
  });
}

template <class T>
void BlockLoop<T>::walk(FunctionRef<void(std::int64_t)> visit) {
  const KeyRange all = sight_.all();
  const std::int64_t step = strategy_.block_keys;
  for (std::int64_t block = all.first / step * step; block < all.last; block += step) {
    if (sight_.look_at(block, std::min(block + step, end_))) visit(block);
  }
}

template <class T>
void BlockLoop<T>::for_each_block(bool values, FunctionRef<void(int, std::int64_t)> work) {
  const std::int64_t end = sight_.all().last, step = strategy_.block_keys;
  const bool hints = values && way_ != nullptr && strategy_.hints;
  ahead_.lines = 0;
  walk([&](std::int64_t block) {
    records_.fetch(group_, sight_, way_, values);
    kernels::Ahead next;
    if (hints) next = ahead_of(problem_, *way_->score, group_, {block + step, std::min(block + 2 * step, end)});
    int turn = 0, turns = 0;
    for (int p = 0; p < group_.count(); ++p) turns += sight_.part(p).skip ? 0 : 1;
    for (int p = 0; p < group_.count(); ++p) {
      if (sight_.part(p).skip) continue;
      if (hints) ahead_ = part_of(next, turn++, turns, sight_.part(p).keys / strategy_.panel->tile_keys);
      work(p, block);
    }
  });
}

template <class T>
void BlockLoop<T>::weigh(int p) {
  const kernels::WeighArgs<T> args{
      scores_, group_.panel(p).lanes, sight_.part(p).keys, w_.row_max, max(p), sum(p), w_.rescale, entropy(p)};
  problem_.weighing.family == Family::linear ? strategy_.weighs->add_up(args) : strategy_.weigh(args);
}

template <class T>
void BlockLoop<T>::drop_weights(int p) {
  if (problem_.dropping.threshold == 0) return;
  if (scores_ != w_.scores) {  // what is kept for the masses is not dropped
    std::copy_n(scores_, sight_.part(p).keys * group_.panel(p).lanes, w_.scores);
    scores_ = w_.scores;
  }
  drop(p, scores_);
}

template <class T>
void BlockLoop<T>::drop(int p, T* weights) {
  const Panel& panel = group_.panel(p);
  const Dropping& dropping = problem_.dropping;
  for (int r = 0; r < panel.rows(); ++r) {
    w_.row_keys[r] = row_key(dropping, row_of(panel, r, group_.batch, head()));
  }
  strategy_.weighs->drop({weights, panel.lanes, panel.rows(), sight_.part(p).keys, sight_.part(p).first, w_.row_keys,
                          dropping.threshold, static_cast<T>(dropping.factor)});
}

// Third and fourth station.
template <class T>
void BlockLoop<T>::pool_block(int p, const MutableView& out) {
  const Panel& panel = group_.panel(p);
  const Part& part = sight_.part(p);
  Progress& progress = progress_[static_cast<std::size_t>(p)];
  if (problem_.weighing.kept > 0) {
    T* candidates = scores_;
    if (problem_.weighing.family == Family::linear && mark_excluded(p)) {
      // What is excluded is 0 here, and has no place among the best.
      for (int i = 0; i < part.keys * panel.lanes; ++i) {
        if (w_.shadow[i] != -infinity<T>) w_.shadow[i] = scores_[i];
      }
      candidates = w_.shadow;
    }
    selection_.add(p, panel, candidates, part.keys, part.first);
  }
  if (problem_.weighing.family == Family::selection) {
    progress = Progress::started;
    return;
  }
  const bool compact = problem_.weighing.compact;
  const bool select = (part.excludes() || compact) && !records_.values_finite();
  if (select && !compact) mark_excluded(p);  // in the weights a pair's 0 may also be a small weight
  weigh(p);
  if (select && compact) {  // a kernel's 0 excludes
    for (int i = 0; i < part.keys * panel.lanes; ++i) w_.shadow[i] = scores_[i] == T(0) ? -infinity<T> : T(0);
  }
  drop_weights(p);
  const auto& values = records_.values();
  kernels::PoolArgs<T> args{scores_,
                            panel.lanes,
                            panel.rows(),
                            values.row(part.first - sight_.block().first),
                            values.stride,
                            records_.strip_stride(),
                            static_cast<int>(strategy_.decode ? problem_.Dv : strategy_.value_width(problem_)),
                            part.keys,
                            sums(p),
                            strategy_.value_width(problem_),
                            progress == Progress::none ? nullptr : w_.rescale,
                            nullptr,
                            nullptr,
                            w_.factors,
                            sums(p),
                            strategy_.value_width(problem_)};
  if (strategy_.decode) args.reading = kernels::best_reading(problem_.Dv * values.size);
  progress = Progress::started;
  std::fill_n(w_.factors, panel.lanes, T(1));
  if (select) return pool_selected(p, args);
  if (part.limited && !strategy_.decode) {
    args.begins = w_.begins;
    args.ends = w_.ends;
  }
  if (finish_with(args, p, out)) progress = Progress::finished;
  (values.staged ? strategy_.pool_staged : strategy_.pool)(args);
}

// The panel's last block may write its outputs itself, where every row has seen something and rows of T in whole
// vectors are wanted.
template <class T>
bool BlockLoop<T>::finish_with(kernels::PoolArgs<T>& args, int p, const MutableView& out) const {
  const Part& part = sight_.part(p);
  const Panel& panel = group_.panel(p);
  const bool last = part.first + part.keys == sight_.ranges(p).max_last;
  if (strategy_.decode || !last || !out || out.dtype() != dtype_of<T> || out.stride(3) != 1 ||
      problem_.Dv % strategy_.vector != 0) {
    return false;
  }
  const Weighing& weighing = problem_.weighing;
  if (!weighing.normalized && problem_.on_empty != OnEmpty::zero) return false;  // it is not known who is empty
  for (int r = 0; r < panel.queries; ++r) {
    const bool empty = weighing.family == Family::linear ? sum(p)[r] == T(0) : max(p)[r] == -infinity<T>;
    if (weighing.normalized && empty) return false;
  }
  for (int r = 0; r < panel.queries; ++r) w_.factors[r] = row_factor(weighing, max(p)[r], sum(p)[r]);
  args.out = out.as<T>() + place(out, row_of(panel, 0, group_.batch, head()));
  args.out_stride = out.stride(2);
  return true;
}

template <class T>
bool BlockLoop<T>::mark_excluded(int p) {
  const Part& part = sight_.part(p);
  if (!part.excludes()) return false;
  const int lanes = group_.panel(p).lanes;
  std::fill_n(w_.shadow, w_.block * lanes, T(0));
  set_row_parameters(p);
  const kernels::EditArgs<T> args{w_.shadow, lanes,   0,         part.keys, nullptr, part.pairs.added,
                                  nullptr,   nullptr, w_.begins, w_.ends,   T(0)};
  if (part.table.bits) {
    for (int i = 0; i < part.keys * lanes; ++i) {
      if ((part.pairs.excluded[i / lanes] >> (i % lanes) & 1) != 0) w_.shadow[i] = -infinity<T>;
    }
  } else if (part.table.state == PairState::mixed) {
    strategy_.edits->add(args);
  }
  if (part.limited) strategy_.edits->limit(args);
  return true;
}

// A block in which somebody's excluded value is NaN or infinite, and 0 times it would be NaN: row by row, with the
// weights and values of the keys that the row sees, and no others.
template <class T>
void BlockLoop<T>::pool_selected(int p, kernels::PoolArgs<T> args) {
  const Panel& panel = group_.panel(p);
  const kernels::PoolArgs<T> block = args;
  const T* values = static_cast<const T*>(block.values);
  // Decode has whole rows; the panel kernel has strips, of which a row may hold fewer.
  const std::int64_t width = strategy_.decode ? problem_.Dv : strategy_.panel->strip;
  const std::int64_t strips = strategy_.decode ? 1 : divide_up(args.width, width);
  args.weights = w_.selected_weights;
  args.values = w_.selected_values;
  args.value_stride = width;
  args.strip_stride = w_.block * width;
  args.lanes = args.rows = 1;
  for (int r = 0; r < panel.rows(); ++r) {
    args.keys = 0;
    for (int j = 0; j < block.keys; ++j) {
      if (w_.shadow[j * panel.lanes + r] == -infinity<T>) continue;
      w_.selected_weights[args.keys] = block.weights[j * panel.lanes + r];
      for (std::int64_t strip = 0; strip < strips; ++strip) {
        std::copy_n(values + j * block.value_stride + strip * block.strip_stride, width,
                    w_.selected_values + args.keys * width + strip * args.strip_stride);
      }
      ++args.keys;
    }
    args.sums = args.out = block.sums + r * block.sum_stride;
    args.rescale = block.rescale == nullptr ? nullptr : block.rescale + r;
    strategy_.pool_staged(args);
  }
}

template class BlockLoop<float>;
template class BlockLoop<double>;

}  // namespace qkv
