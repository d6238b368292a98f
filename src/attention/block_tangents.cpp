// attention/block_tangents.cpp: weights again, rates of scores, and what they come to.
#include "attention/block_tangents.h"

#include <algorithm>

#include "attention/load.h"
#include "base/carver.h"
#include "base/divide_up.h"
#include "base/numbers.h"
#include "tensor/elements.h"

namespace qkv {

template <class T>
TangentRoom<T>::TangentRoom(const TangentTask<T>& task, std::byte* memory) {
  const Strategy<T>& s = task.strategy;
  const std::int64_t group = s.group_panels, lanes = s.max_lanes, strip = s.panel->strip;
  const std::int64_t block = s.padded_block();
  const std::int64_t width = task.left ? task.left.extent(3) : 0;
  Carver carver(memory);
  panel_left = width * lanes;
  strip_stride = block * strip;
  for (T** of_block : {&weights, &rates, &unedited}) *of_block = carver.take<T>(block * lanes);
  left = carver.take<T>(group * panel_left);
  dv_strips = carver.take<T>(task.dv ? divide_up(task.problem.Dv, strip) * strip_stride : 0);
  totals = carver.take<T>(group * lanes);
  ones = carver.take<T>(lanes);
  hidden = carver.take<T>(s.scoring->parameters->hidden_width());
  bytes = carver.bytes();
}

template <class T>
BlockTangents<T>::BlockTangents(const TangentTask<T>& task, Workspace<T>& workspace, TangentRoom<T>& room)
    : task_(task),
      problem_(task.problem),
      s_(task.strategy),
      w_(workspace),
      room_(room),
      loop_(task.problem, task.strategy, workspace),
      derivatives_(task.problem, task.strategy, workspace, loop_, room.unedited) {
  std::fill_n(room_.ones, s_.max_lanes, T(1));
}

template <class T>
void BlockTangents<T>::run(const GroupOf& group) {
  loop_.begin(group, {0, problem_.Tk});
  const int count = loop_.group_.count();
  for (int p = 0; p < count; ++p) begin_panel(p);
  if (const Tensor& hidden = s_.scoring->parameters->hidden) {
    const T factor = static_cast<T>(loop_.way_->score->derivative_factor());
    const View w = of_head(hidden, loop_.head());
    for (std::int64_t e = 0; e < w.extent(0); ++e) room_.hidden[e] = w.as<T>()[e] * factor;
  }
  std::int64_t fetched = -1;
  loop_.for_each_block(true, [&](int p, std::int64_t block) {
    if (fetched != block) fetch_dv();
    fetched = block;
    const auto& part = loop_.sight_.part(p);
    T* reference = w_.rescale;
    std::fill_n(reference, s_.max_lanes, problem_.weighing.family == Family::linear ? T(0) : infinity<T>);
    for (int r = 0; r < loop_.group_.panel(p).rows(); ++r) reference[r] = task_.reference[state_of(row(p, r))];
    loop_.scores_ = room_.weights;
    loop_.compute_scores(p);
    kernels::ChainArgs<T> chain{room_.weights, nullptr, loop_.group_.panel(p).lanes, part.keys, reference};
    problem_.weighing.family == Family::linear ? s_.gradients->scale(chain) : s_.gradients->exponentials(chain);
    panel_rates(p);
    change_weights(p);
    pool(p);
  });
  for (int p = 0; p < count; ++p) finish(p);
}

template <class T>
void BlockTangents<T>::begin_panel(int p) {
  std::fill_n(loop_.sums(p), w_.panel_sums, T(0));
  std::fill_n(totals(p), s_.max_lanes, T(0));
  if (task_.left) loop_.transpose_rows(task_.left, p, task_.left.extent(3), T(1), left(p));
}

template <class T>
void BlockTangents<T>::fetch_dv() {
  if (!task_.dv) return;
  const View& dv = task_.dv;
  const KeyRange block = loop_.sight_.block();
  const RowOf first{loop_.group_.batch, loop_.head() / problem_.group, block.first};
  dv_finite_ =
      s_.panel->spread({dv.as<T>() + place(dv, first), dv.stride(2), static_cast<int>(block.last - block.first),
                        static_cast<int>(problem_.Dv), room_.dv_strips, room_.strip_stride});
}

// Of the scores of a panel's part, as they are weighed.
template <class T>
void BlockTangents<T>::panel_rates(int p) {
  const Part& part = loop_.sight_.part(p);
  const int lanes = loop_.group_.panel(p).lanes;
  if (!task_.left) {
    std::fill_n(room_.rates, part.keys * lanes, T(0));
  } else {
    const ScoreWay& way = *loop_.way_->score;
    const View& right = task_.right;
    const RowOf first{loop_.group_.batch, loop_.head() / (problem_.H / right.extent(1)), part.first};
    const T* right_rows = right.as<T>() + place(right, first);
    if (problem_.score.kind == Score::Kind::additive) {
      const auto& keys = loop_.records_.keys();
      const bool direct = way.kind == ScoreWay::Kind::additive_direct;
      (direct ? s_.gradients->additive_direct_rates : s_.gradients->additive_rates)(
          {loop_.queries(p), left(p), reinterpret_cast<const T*>(keys.row(offset(p))), right_rows, keys.stride,
           right.stride(2), room_.hidden, static_cast<int>(way.width), lanes, part.keys, room_.rates});
    } else {
      s_.panel->score({left(p), right_rows, right.stride(2), static_cast<int>(right.extent(3)), lanes, 0, part.keys,
                       room_.rates, nullptr});
    }
  }
  if (problem_.softcap != 0) derivatives_.through_softcap(p, room_.rates, nullptr);
  for (std::size_t i = 0; i < problem_.mask.edit_by().size(); ++i) derivatives_.through_your_edit(p, i, room_.rates);
  add_biases(p);
}

template <class T>
void BlockTangents<T>::add_biases(int p) const {
  const Part& part = loop_.sight_.part(p);
  const int lanes = loop_.group_.panel(p).lanes;
  for (const View& bias : task_.biases) {
    for (int r = 0; r < loop_.group_.panel(p).rows(); ++r) {
      const std::int64_t at = place(bias, row(p, r)) + part.first * bias.stride(3);
      for (int j = 0; j < part.keys; ++j) {
        room_.rates[j * lanes + r] += static_cast<T>(floating_at(bias, at + j * bias.stride(3)));
      }
    }
  }
}

// From rates of scores to those of weights, but for what normalization takes away; and their sums.
template <class T>
void BlockTangents<T>::change_weights(int p) {
  const Part& part = loop_.sight_.part(p);
  const int lanes = loop_.group_.panel(p).lanes;
  const T factor = static_cast<T>(task_.factor);
  const bool by_score = problem_.weighing.family == Family::linear && !problem_.weighing.kernel_values;
  const bool excludes = by_score && loop_.mark_excluded(p);
  const T* reference = w_.rescale;
  for (int j = 0; j < part.keys; ++j) {
    for (int r = 0; r < lanes; ++r) {
      const int at = j * lanes + r;
      const T by =
          by_score ? (excludes && loop_.excluded()[at] == -infinity<T> ? T(0) : reference[r]) : room_.weights[at];
      T& rate = room_.rates[at];
      rate = by == T(0) ? T(0) : rate * by * factor;  // what is not seen may be anything
      totals(p)[r] += rate;
    }
  }
}

template <class T>
void BlockTangents<T>::pool(int p) {
  const Part& part = loop_.sight_.part(p);
  const Panel& panel = loop_.group_.panel(p);
  if (problem_.dropping.threshold != 0) {
    loop_.drop(p, room_.weights);
    loop_.drop(p, room_.rates);
  }
  const bool excludes = part.excludes() || problem_.weighing.compact;
  if (excludes && !(loop_.records_.values_finite() && dv_finite_)) return pool_pair_by_pair(p);
  const auto& values = loop_.records_.values();
  const std::int64_t width = s_.value_width(problem_);
  kernels::PoolArgs<T> args{room_.rates,
                            panel.lanes,
                            panel.rows(),
                            values.row(offset(p)),
                            values.stride,
                            loop_.records_.strip_stride(),
                            static_cast<int>(width),
                            part.keys,
                            loop_.sums(p),
                            width,
                            room_.ones,
                            nullptr,
                            nullptr,
                            room_.ones,
                            loop_.sums(p),
                            width};
  s_.panel->pool(args);
  if (!task_.dv) return;
  args.weights = room_.weights;
  args.values = room_.dv_strips + offset(p) * s_.panel->strip;
  args.value_stride = s_.panel->strip;
  args.strip_stride = room_.strip_stride;
  s_.panel->pool(args);
}

// Where something that somebody may not see is NaN or infinite, and 0 times it would be NaN.
template <class T>
void BlockTangents<T>::pool_pair_by_pair(int p) {
  const Part& part = loop_.sight_.part(p);
  const Panel& panel = loop_.group_.panel(p);
  const auto& values = loop_.records_.values();
  const std::ptrdiff_t strip = s_.panel->strip, width = s_.value_width(problem_);
  const auto add = [&](T weight, const T* rows, std::ptrdiff_t stride, std::ptrdiff_t strip_stride, int j, T* sums) {
    if (weight == T(0)) return;
    for (std::int64_t c = 0; c < problem_.Dv; ++c) {
      sums[c] += weight * rows[c / strip * strip_stride + (offset(p) + j) * stride + c % strip];
    }
  };
  for (int j = 0; j < part.keys; ++j) {
    for (int r = 0; r < panel.rows(); ++r) {
      T* sums = loop_.sums(p) + r * width;
      const int at = j * panel.lanes + r;
      add(room_.rates[at], reinterpret_cast<const T*>(values.data), values.stride, loop_.records_.strip_stride(), j,
          sums);
      if (task_.dv) add(room_.weights[at], room_.dv_strips, strip, room_.strip_stride, j, sums);
    }
  }
}

template <class T>
void BlockTangents<T>::finish(int p) const {
  std::vector<T> out(static_cast<std::size_t>(problem_.Dv));
  for (int r = 0; r < loop_.group_.panel(p).rows(); ++r) {
    const RowOf at = row(p, r);
    const T total = totals(p)[r];
    const T* sums = loop_.sums(p) + r * s_.value_width(problem_);
    T* to = task_.out_rates.template as<T>() + place(task_.out_rates, at);
    std::copy_n(sums, problem_.Dv, to);
    if (task_.lse_rates) task_.lse_rates.template as<T>()[state_of(at)] = total;
    if (!task_.out || total == T(0)) continue;
    load_row(task_.out, place(task_.out, at), task_.out.stride(3), problem_.Dv, out.data());
    for (std::size_t c = 0; c < out.size(); ++c) to[c] -= total * out[c];
  }
}

template struct TangentRoom<float>;
template struct TangentRoom<double>;
template class BlockTangents<float>;
template class BlockTangents<double>;

}  // namespace qkv
