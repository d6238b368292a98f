// attention/block_products.cpp: what the weights and slopes of a block come to for queries, keys, values and additive's
// w.
#include <algorithm>
#include <array>
#include <cmath>

#include "attention/block_gradients.h"
#include "attention/functors.h"
#include "base/divide_up.h"

namespace qkv {

template <class T>
void BlockGradients<T>::products() {
  const bool excludes = loop_.sight_.excludes() || problem_.weighing.compact || task_.chosen;
  const bool yours = task_.needs_slopes && loop_.way_->score->kind == ScoreWay::Kind::yours;
  if (excludes && !(rows_finite_ && keys_finite_)) {
    product_pair_by_pair(task_.needs_slopes && !yours);
    if (yours) call_derivative();
    return;
  }
  const std::int64_t value_width = s_.value_width(problem_);
  gather(weights(0), room_.upstream_strips, value_width, room_.dv);
  if (!task_.needs_slopes) return;
  if (yours) return call_derivative();
  by_units() ? additive_gradients() : product_queries_and_keys();
}

// Of the function given to score_by.
template <class T>
void BlockGradients<T>::call_derivative() {
  const std::int64_t width = loop_.way_->score->width, stride = s_.query_width(*loop_.way_->score);
  const std::int64_t first = loop_.sight_.block().first - keys_.first;
  const auto& keys = loop_.records_.keys();
  for (int p = 0; p < loop_.group_.count(); ++p) {
    const Part& part = loop_.sight_.part(p);
    if (part.skip) continue;
    loop_.scores_ = slopes(p) + offset(p) * loop_.group_.panel(p).lanes;
    const SlopeTile<T> tile{{loop_.block_of_head(p, 0, 0, part.keys), loop_.queries(p),
                             reinterpret_cast<const T*>(keys.row(offset(p))), stride, keys.stride, width},
                            room_.dq.row(first_row(p)),
                            room_.dk.row(first + offset(p)),
                            task_.product_width};
    derive(problem_.score, tile);
  }
}

// sums += over the panels of weights^T rows
template <class T>
void BlockGradients<T>::gather(const T* weights, const T* strips, std::int64_t width,
                               const typename GradientRoom<T>::Rows& sums) const {
  std::array<kernels::GatherPanel<T>, PanelGroup::max_panels> panels;
  int count = 0;
  for (int p = 0; p < loop_.group_.count(); ++p) {
    const Part& part = loop_.sight_.part(p);
    if (part.skip) continue;
    const Panel& panel = loop_.group_.panel(p);
    panels[static_cast<std::size_t>(count++)] = {weights + p * room_.panel_weights,
                                                 strips + first_row(p) * s_.panel->strip,
                                                 panel.lanes,
                                                 panel.rows(),
                                                 offset(p),
                                                 offset(p) + part.keys};
  }
  const std::int64_t first = loop_.sight_.block().first - keys_.first;
  s_.gradients->gather(
      {panels.data(), count, block_keys(), room_.row_strip, static_cast<int>(width), sums.row(first), sums.stride});
}

template <class T>
void BlockGradients<T>::product_queries_and_keys() {
  const std::int64_t width = divide_up(loop_.way_->score->product_width, s_.vector) * s_.vector;
  gather(slopes(0), room_.query_strips, width, room_.dk);
  for (int p = 0; p < loop_.group_.count(); ++p) {
    const Part& part = loop_.sight_.part(p);
    if (part.skip) continue;
    const Panel& panel = loop_.group_.panel(p);
    T* dq = room_.dq.row(first_row(p));
    kernels::PoolArgs<T> pool{slopes(p) + offset(p) * panel.lanes,
                              panel.lanes,
                              panel.rows(),
                              room_.key_strips + offset(p) * s_.panel->strip,
                              s_.panel->strip,
                              room_.key_strip,
                              static_cast<int>(width),
                              part.keys,
                              dq,
                              room_.dq.stride,
                              room_.ones,
                              nullptr,
                              nullptr,
                              room_.ones,
                              dq,
                              room_.dq.stride};
    if (part.limited) {
      loop_.set_row_parameters(p);
      pool.begins = w_.begins;
      pool.ends = w_.ends;
    }
    s_.panel->pool(pool);
  }
}

template <class T>
void BlockGradients<T>::additive_gradients() {
  const std::int64_t stride = task_.product_width, first = loop_.sight_.block().first - keys_.first;
  const std::int64_t strip = s_.panel->strip, depth = divide_up(loop_.way_->score->width, strip) * strip;
  const bool direct = loop_.way_->score->kind == ScoreWay::Kind::additive_direct;
  std::fill_n(room_.dhidden, stride, T(0));
  for (int p = 0; p < loop_.group_.count(); ++p) {
    const Part& part = loop_.sight_.part(p);
    if (part.skip) continue;
    const Panel& panel = loop_.group_.panel(p);
    const kernels::AdditiveGradientArgs<T> args{slopes(p) + offset(p) * panel.lanes,
                                                panel.lanes,
                                                panel.rows(),
                                                part.keys,
                                                static_cast<int>(depth),
                                                room_.query_strips + first_row(p) * stride,
                                                room_.key_strips + offset(p) * stride,
                                                stride,
                                                room_.dq.row(first_row(p)),
                                                room_.dk.row(first + offset(p)),
                                                room_.dhidden};
    (direct ? s_.gradients->additive_direct : s_.gradients->additive)(args);
  }
  add_hidden();
}

template <class T>
void BlockGradients<T>::add_hidden() {
  sums_->hidden.resize(static_cast<std::size_t>(loop_.way_->score->width), 0.0);
  for (std::size_t e = 0; e < sums_->hidden.size(); ++e) sums_->hidden[e] += static_cast<double>(room_.dhidden[e]);
}

// A block in which something that somebody may not see is NaN or infinite, and 0 times it would be NaN.
template <class T>
void BlockGradients<T>::product_pair_by_pair(bool with_slopes) {
  const PanelGroup& group = loop_.group_;
  const std::int64_t strip = s_.panel->strip, at = loop_.sight_.block().first - keys_.first;
  const auto in_strips = [&](const T* strips, std::ptrdiff_t stride, std::int64_t row, std::int64_t c) {
    return strips[c / strip * stride + row * strip + c % strip];
  };
  std::fill_n(room_.dhidden, task_.product_width, T(0));
  for (int p = 0; p < group.count(); ++p) {
    const Part& part = loop_.sight_.part(p);
    if (part.skip) continue;
    const Panel& panel = group.panel(p);
    for (int j = offset(p); j < offset(p) + part.keys; ++j) {
      for (int r = 0; r < panel.rows(); ++r) {
        const std::int64_t i = first_row(p) + r;
        const T weight = weights(p)[j * panel.lanes + r];
        for (std::int64_t c = 0; weight != T(0) && c < problem_.Dv; ++c) {
          room_.dv.row(at + j)[c] += weight * in_strips(room_.upstream_strips, room_.row_strip, i, c);
        }
        const T slope = with_slopes ? slopes(p)[j * panel.lanes + r] : T(0);
        if (slope == T(0)) continue;
        if (by_units()) {
          add_units(slope, i, j, at + j);
          continue;
        }
        for (std::int64_t c = 0; c < loop_.way_->score->product_width; ++c) {
          room_.dk.row(at + j)[c] += slope * in_strips(room_.query_strips, room_.row_strip, i, c);
          room_.dq.row(i)[c] += slope * in_strips(room_.key_strips, room_.key_strip, j, c);
        }
      }
    }
  }
  if (with_slopes && by_units()) add_hidden();
}

// One pair of the additive score.
template <class T>
void BlockGradients<T>::add_units(T slope, std::int64_t i, std::int64_t j, std::int64_t key) {
  const std::int64_t stride = task_.product_width;
  const bool direct = loop_.way_->score->kind == ScoreWay::Kind::additive_direct;
  for (std::int64_t e = 0; e < loop_.way_->score->width; ++e) {
    const T q = room_.query_strips[i * stride + e], k = room_.key_strips[j * stride + e];
    const T t = direct ? std::tanh(q + k) : T(1) - T(2) / (T(1) + q * k);
    const T through = slope * (T(1) - t * t) / static_cast<T>(loop_.way_->score->derivative_factor());
    room_.dq.row(i)[e] += through;
    room_.dk.row(key)[e] += through;
    room_.dhidden[e] += slope * t;
  }
}

template void BlockGradients<float>::products();
template void BlockGradients<double>::products();

}  // namespace qkv
