// attention/block_gradients.cpp: weights again, gradients of scores, and their products, for one block after another.
#include "attention/block_gradients.h"

#include <algorithm>
#include <cmath>

#include "attention/load.h"
#include "base/divide_up.h"
#include "base/numbers.h"

namespace qkv {

template <class T>
GradientRoom<T>::GradientRoom(const GradientTask<T>& task, std::byte* memory) {
  const Strategy<T>& s = task.strategy;
  const std::int64_t group = s.group_panels, lanes = s.max_lanes, strip = s.panel->strip;
  const std::int64_t block = s.padded_block();
  const std::int64_t Dv = task.problem.Dv;
  rows = group * lanes;
  panel_weights = block * lanes;
  row_strip = rows * strip;
  key_strip = block * strip;
  Carver carver(memory);
  weights = carver.take<T>(group * panel_weights);
  slopes = carver.take<T>(group * panel_weights);
  upstream = carver.take<T>(group * Dv * lanes);
  upstream_strips = carver.take<T>(divide_up(Dv, strip) * row_strip);
  query_strips = carver.take<T>(divide_up(task.product_width, strip) * row_strip);
  key_strips = carver.take<T>(divide_up(task.product_width, strip) * key_strip);
  own_dq = carver.take<T>(rows * task.product_width);
  own_dk = carver.take<T>(task.range_keys * task.product_width);
  own_dv = carver.take<T>(task.range_keys * s.value_width(task.problem));
  for (T** per_row : {&reference, &added, &entropy, &multiplier}) *per_row = carver.take<T>(group * lanes);
  ones = carver.take<T>(lanes);
  unedited = carver.take<T>(block * lanes);
  dhidden = carver.take<T>(task.product_width);
  bytes = carver.bytes();
}

template <class T>
BlockGradients<T>::BlockGradients(const GradientTask<T>& task, Workspace<T>& workspace, GradientRoom<T>& room)
    : task_(task),
      problem_(task.problem),
      s_(task.strategy),
      w_(workspace),
      room_(room),
      loop_(task.problem, task.strategy, workspace),
      derivatives_(task.problem, task.strategy, workspace, loop_, room.unedited) {}

template <class T>
bool BlockGradients<T>::run(const GroupOf& group, KeyRange keys, PairSums& sums) {
  keys_ = keys;
  sums_ = &sums;
  const KeyRange queries = s_.queries_of(group.group);
  rows_ = queries.last - queries.first;
  loop_.begin(group, keys);
  const KeyRange seen = loop_.sight_.all();
  if (seen.first >= seen.last) return false;
  begin_rows();
  loop_.walk([this](std::int64_t) {
    const auto* way = task_.needs_slopes ? loop_.way_ : nullptr;
    const std::int64_t width = way == nullptr || by_units() ? 0 : way->score->product_width;
    keys_finite_ =
        loop_.records_.fetch_for_gradients(loop_.group_, loop_.sight_, way, width, room_.key_strips, room_.key_strip);
    if (way != nullptr && by_units()) {
      const auto& rows = loop_.records_.keys();
      keys_finite_ = load_padded(reinterpret_cast<const T*>(rows.data), rows.stride, block_keys(), room_.key_strips);
    }
    for (int p = 0; p < loop_.group_.count(); ++p) {
      if (!loop_.sight_.part(p).skip) panel_slopes(p);
    }
    products();
  });
  return true;
}

// The group's queries and upstream gradients, in the layouts of both kinds of products, and the states of its rows.
template <class T>
void BlockGradients<T>::begin_rows() {
  const PanelGroup& group = loop_.group_;
  std::fill_n(room_.ones, s_.max_lanes, T(1));
  const View& dout = task_.upstream;
  for (int p = 0; p < group.count(); ++p) {
    const Panel& panel = group.panel(p);
    loop_.transpose_rows(dout, p, problem_.Dv, T(1), room_.upstream + p * problem_.Dv * s_.max_lanes);
    const auto set = [&](T* to, const std::vector<T>& from, T padding) {
      if (from.empty()) return;
      const auto at = (group.batch * problem_.H + loop_.head()) * problem_.Tq + panel.first_query;
      std::fill_n(row_array(to, p), s_.max_lanes, padding);
      std::copy_n(from.begin() + at, panel.rows(), row_array(to, p));
    };
    const bool linear = problem_.weighing.family == Family::linear;
    set(room_.reference, task_.rows.reference, linear ? T(0) : infinity<T>);
    set(room_.added, task_.rows.added, T(0));
    set(room_.entropy, task_.rows.entropy, T(0));
    set(room_.multiplier, task_.rows.multiplier, T(0));
  }
  rows_finite_ = load_strips(dout, problem_.Dv, room_.upstream_strips);
  if (task_.needs_slopes) {
    const ScoreWay& way = *loop_.way_->score;
    if (by_units()) {
      const View& q = way.q;
      rows_finite_ &= load_padded(q.as<T>() + place(q, row(0, 0)), q.stride(2), rows_, room_.query_strips);
    } else {
      rows_finite_ &= load_strips(way.q, way.product_width, room_.query_strips);
    }
  }
}

// The additive score has units instead of coordinates, and a kernel that takes rows as they are, with zeros behind.
template <class T>
bool BlockGradients<T>::by_units() const {
  const ScoreWay::Kind kind = loop_.way_->score->kind;
  return kind == ScoreWay::Kind::additive || kind == ScoreWay::Kind::additive_direct;
}

// The answer is whether all are finite.
template <class T>
bool BlockGradients<T>::load_padded(const T* rows, std::ptrdiff_t stride, std::int64_t count, T* to) const {
  const std::int64_t width = loop_.way_->score->width, padded = task_.product_width;
  bool finite = true;
  for (std::int64_t r = 0; r < count; ++r, rows += stride, to += padded) {
    finite &= s_.rows->finite(rows, width);
    std::fill(std::copy_n(rows, width, to), to + padded, T(0));
  }
  return finite;
}

// The group's rows of a view, in strips; the answer is whether all are finite.
template <class T>
bool BlockGradients<T>::load_strips(const View& view, std::int64_t width, T* strips) const {
  const RowOf first = row(0, 0);
  if (view.dtype() == dtype_of<T> && view.stride(3) == 1) {
    return s_.panel->spread({view.as<T>() + place(view, first), view.stride(2), static_cast<int>(rows_),
                             static_cast<int>(width), strips, room_.row_strip});
  }
  bool finite = true;
  RowReader<T> reader(view);
  for (std::int64_t r = 0; r < rows_; ++r) {
    finite &= s_.panel->spread({reader.row(place(view, first, first.query + r)), 0, 1, static_cast<int>(width),
                                strips + r * s_.panel->strip, room_.row_strip});
  }
  return finite;
}

// One panel's weights and slopes.
template <class T>
void BlockGradients<T>::panel_slopes(int p) {
  const Part& part = loop_.sight_.part(p);
  const std::ptrdiff_t at = offset(p) * loop_.group_.panel(p).lanes;
  clear_unseen(p, weights(p));
  if (task_.needs_slopes) clear_unseen(p, slopes(p));
  const Weighing& weighing = problem_.weighing;
  const bool plain = task_.needs_slopes && loop_.way_->score->kind == ScoreWay::Kind::dot &&
                     weighing.family == Family::exponential && !weighing.exclusion_only && !problem_.edits_scores() &&
                     part.table.state != PairState::mixed && problem_.dropping.threshold == 0 &&
                     task_.rows.entropy.empty() && !task_.chosen && task_.biases.empty();
  plain ? recall_plain(p, weights(p) + at, slopes(p) + at) : recall(p, weights(p) + at, slopes(p) + at);
}

// Keys of the block outside of the panel's part weigh nothing; those that are never looked at are left as they are.
template <class T>
void BlockGradients<T>::clear_unseen(int p, T* block) const {
  const int lanes = loop_.group_.panel(p).lanes, reach = s_.gradients->gather_keys;
  const int first = offset(p), last = first + loop_.sight_.part(p).keys;
  std::fill(block + std::max(first - reach, 0) * lanes, block + first * lanes, T(0));
  std::fill(block + last * lanes, block + std::min(last + reach, block_keys()) * lanes, T(0));
}

// Products that become weights and slopes while they are in registers.
template <class T>
void BlockGradients<T>::recall_plain(int p, T* weights, T* slopes) {
  const Part& part = loop_.sight_.part(p);
  const int lanes = loop_.group_.panel(p).lanes;
  const auto& keys = loop_.records_.keys();
  const auto& values = loop_.records_.values();
  kernels::RecallArgs<T> args{loop_.queries(p),
                              reinterpret_cast<const T*>(keys.row(offset(p))),
                              keys.stride,
                              static_cast<int>(loop_.way_->score->width),
                              lanes,
                              0,
                              part.keys,
                              row_array(room_.reference, p),
                              weights,
                              slopes};
  s_.gradients->weigh(args);
  if (part.limited) {
    loop_.set_row_parameters(p);
    kernels::EditArgs<T> edit{weights, lanes, 0, 0, nullptr};
    edit.begins = w_.begins;
    edit.ends = w_.ends;
    edit.excluded = 0;
    const auto whole = loop_.seen_by_all(p);
    for (const auto& [first, last] : {std::pair{0, whole.first}, std::pair{whole.last, part.keys}}) {
      edit.first = first;
      edit.last = last;
      if (first < last) s_.edits->limit(edit);
    }
  }
  args.queries = room_.upstream + p * problem_.Dv * s_.max_lanes;
  args.keys = reinterpret_cast<const T*>(values.row(offset(p)));
  args.key_stride = values.stride;
  args.depth = static_cast<int>(problem_.Dv);
  args.per_row = row_array(room_.added, p);
  args.factor = static_cast<T>(task_.slope_factor);
  s_.gradients->chain(args);
}

// The same for everything else, one step at a time.
template <class T>
void BlockGradients<T>::recall(int p, T* weights, T* slopes) {
  const Part& part = loop_.sight_.part(p);
  const Panel& panel = loop_.group_.panel(p);
  const Weighing& weighing = problem_.weighing;
  const bool linear = weighing.family == Family::linear, drops = problem_.dropping.threshold != 0;
  kernels::ChainArgs<T> chain{weights, slopes, panel.lanes, part.keys, row_array(room_.reference, p)};
  loop_.scores_ = weights;
  loop_.compute_scores(p);
  linear ? s_.gradients->scale(chain) : s_.gradients->exponentials(chain);
  if (task_.chosen) keep_chosen(p, weights);
  if (task_.needs_slopes) {
    const auto& values = loop_.records_.values();
    kernels::ScoreArgs<T> products{room_.upstream + p * problem_.Dv * s_.max_lanes,
                                   values.row(offset(p)),
                                   values.stride,
                                   static_cast<int>(problem_.Dv),
                                   panel.lanes,
                                   0,
                                   part.keys,
                                   slopes,
                                   nullptr};
    s_.panel->score(products);
    if (drops) loop_.drop(p, slopes);
    chain.added = row_array(room_.added, p);
    chain.factor = static_cast<T>(task_.slope_factor);
    if (!task_.rows.entropy.empty()) chain.entropy = row_array(room_.entropy, p);
    if (linear) chain.multiplier = row_array(room_.multiplier, p);
    chain.keep_zeros = linear && !weighing.kernel_values;
    s_.gradients->chain_any(chain);
    if (chain.keep_zeros && loop_.mark_excluded(p)) {
      for (int i = 0; i < part.keys * panel.lanes; ++i) {
        if (loop_.excluded()[i] == -infinity<T>) slopes[i] = 0;
      }
    }
  }
  if (drops) loop_.drop(p, weights);
  if (task_.needs_slopes) undo_edits(p, slopes);
}

// All weights but those of the chosen keys become 0; that of hard's is 1.
template <class T>
void BlockGradients<T>::keep_chosen(int p, T* weights) const {
  const Part& part = loop_.sight_.part(p);
  const Panel& panel = loop_.group_.panel(p);
  const View& chosen = task_.chosen;
  std::copy_n(weights, part.keys * panel.lanes, room_.unedited);
  std::fill_n(weights, part.keys * panel.lanes, T(0));
  for (int r = 0; r < panel.rows(); ++r) {
    for (std::int64_t rank = 0; rank < chosen.extent(3); ++rank) {
      const std::int64_t j = chosen.as<std::int64_t>()[place(chosen, row(p, r)) + rank * chosen.stride(3)] - part.first;
      if (j < 0 || j >= part.keys) continue;
      const auto at = static_cast<int>(j) * panel.lanes + r;
      weights[at] = problem_.weighing.exclusion_only ? T(1) : room_.unedited[at];
    }
  }
}

// From gradients of what is weighed to gradients of what the score gave: the edits in reverse.
template <class T>
void BlockGradients<T>::undo_edits(int p, T* slopes) {
  const Part& part = loop_.sight_.part(p);
  const Panel& panel = loop_.group_.panel(p);
  for (const MutableView& bias : task_.biases) add_to_bias(bias, p, slopes);
  if (task_.needs_slopes_of_alibi) {
    loop_.set_row_parameters(p);
    for (int j = 0; j < part.keys; ++j) {
      for (int r = 0; r < panel.rows(); ++r) {
        const T distance = std::abs(w_.positions[r] - static_cast<T>(j));
        sums_->slope -= static_cast<double>(slopes[j * panel.lanes + r]) * static_cast<double>(distance);
      }
    }
  }
  for (std::size_t i = problem_.mask.edit_by().size(); i-- > 0;) derivatives_.through_your_edit(p, i, slopes);
  if (loop_.way_->score->kind == ScoreWay::Kind::distance) slopes_by_distance(p, slopes);
  if (problem_.softcap != 0) derivatives_.through_softcap(p, slopes, task_.needs_softcap ? &sums_->softcap : nullptr);
}

template <class T>
void BlockGradients<T>::add_to_bias(const MutableView& bias, int p, const T* slopes) const {
  const Part& part = loop_.sight_.part(p);
  const Panel& panel = loop_.group_.panel(p);
  for (int r = 0; r < panel.rows(); ++r) {
    T* to = bias.as<T>() + place(bias, row(p, r)) + part.first * bias.stride(3);
    for (int j = 0; j < part.keys; ++j) to[j * bias.stride(3)] += slopes[j * panel.lanes + r];
  }
}

// Times the derivative of the score by the squared distance; see kernels::DistanceGradientArgs.
template <class T>
void BlockGradients<T>::slopes_by_distance(int p, T* slopes) {
  const Part& part = loop_.sight_.part(p);
  const int count = part.keys * loop_.group_.panel(p).lanes;
  loop_.scores_ = room_.unedited;
  loop_.squared_distances(p);
  s_.gradients->distance(
      {slopes, room_.unedited, count, distance_kernel(problem_.score.kind), problem_.weighing.kernel_values});
  if (!task_.needs_squares) return;
  for (int j = 0; j < part.keys; ++j) {
    for (int r = 0; r < loop_.group_.panel(p).rows(); ++r) {
      const int at = j * loop_.group_.panel(p).lanes + r;
      if (slopes[at] == T(0)) continue;
      sums_->square += static_cast<double>(slopes[at]) * static_cast<double>(room_.unedited[at]);
    }
  }
}

template struct GradientRoom<float>;
template struct GradientRoom<double>;
template class BlockGradients<float>;
template class BlockGradients<double>;

}  // namespace qkv
