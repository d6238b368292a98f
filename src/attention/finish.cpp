// attention/finish.cpp: outputs and statistics of rows, and rows that see nothing.
#include "attention/finish.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include <qkv/error.h>

#include "attention/load.h"
#include "base/message.h"
#include "base/numbers.h"

namespace qkv {
namespace {

template <class T>
void put(const MutableView& view, const RowOf& row, double value) {
  if (view) view.as<T>()[place(view, row)] = static_cast<T>(value);
}

}  // namespace

template <class T>
void Finish<T>::write(const PanelResult<T>& result, int p, Mass<T>* mass) {
  const Results& to = results_;
  const bool selects = problem_.weighing.family == Family::selection;
  const bool numbers_wanted = to.lse || to.entropy || to.effective || to.state || to.top_weights;
  if (result.finished && !numbers_wanted && mass == nullptr) return;
  kinds_.assign(static_cast<std::size_t>(result.panel.rows()), RowKind::regular);
  if (to.top_weights && problem_.weighing.family == Family::exponential) find_powers(result);
  for (int r = 0; r < result.panel.rows(); ++r) {
    const RowOf row = result.row(r);
    RowBest<T> best = result.best_of(r);
    RowKind& kind = kinds_[static_cast<std::size_t>(r)];
    if (selects) {
      kind = kind_of(best, result.started, row);
    } else if (!result.finished) {
      kind = kind_of(result.max[r], result.sum[r], result.started, row);
    }
    if (best.room > 0 && kind == RowKind::regular) complete(best, row);
    RowNumbers numbers{quiet_nan<double>, quiet_nan<double>, quiet_nan<T>};
    if (kind == RowKind::empty) {
      numbers = {-infinity<double>, 0, T(0)};
      write_empty(row, mass);
    } else if (selects) {
      best_weights_.clear();
      if (kind == RowKind::regular) numbers = weigh_best(best);
      write_selected(best, numbers.factor, row, mass);
    } else {
      if (kind == RowKind::regular) numbers = this->numbers(result, r);
      if (!result.finished) write_out(result.sums + r * result.sum_stride, numbers.factor, row);
    }
    write_numbers(result, r, row, kind, numbers);
    if (to.top_weights) write_top(best, r, row, kind, numbers.factor);
    if (to.chosen) write_chosen(best, kind, row);
  }
  if (mass != nullptr && !selects) add_mass(result, p, *mass);
}

// A maximum of -inf is a row that sees nothing, or one whose scores are all -inf or NaN: only the mask can tell.
template <class T>
typename Finish<T>::RowKind Finish<T>::kind_of(T max, T sum, bool started, const RowOf& row) const {
  const Weighing& weighing = problem_.weighing;
  if (!started) return RowKind::empty;
  if (!weighing.normalized) {
    // Where an empty row gets zeros, they are what the sums are.
    return problem_.on_empty == OnEmpty::zero || sight_.sees_any(row) ? RowKind::regular : RowKind::empty;
  }
  if (weighing.family == Family::linear) return sum == T(0) ? RowKind::empty : RowKind::regular;
  if (max != -infinity<T>) return RowKind::regular;
  if (std::isnan(sum)) return RowKind::nan;
  return !weighing.compact && sight_.sees_any(row) ? RowKind::nan : RowKind::empty;
}

template <class T>
typename Finish<T>::RowKind Finish<T>::kind_of(RowBest<T>& best, bool started, const RowOf& row) const {
  const Weighing& weighing = problem_.weighing;
  if (best.is_nan()) return RowKind::nan;
  if (*best.count == 0) {
    // All scores that the row sees, if any, are -inf.
    const std::int64_t first = started && !weighing.compact ? sight_.first_seen(row) : -1;
    if (first < 0) return RowKind::empty;
    if (!weighing.hard) return RowKind::nan;
    best.scores[0] = -infinity<T>;
    best.indices[0] = first;
    *best.count = 1;
  }
  const bool below = weighing.minimum && static_cast<double>(best.scores[0]) < *weighing.minimum;
  return below ? RowKind::empty : RowKind::regular;
}

// Where there is room left, scores of -inf come last; but a compact kernel's 0 excludes.
template <class T>
void Finish<T>::complete(RowBest<T>& best, const RowOf& row) const {
  if (best.is_nan()) return;
  const bool compact = problem_.weighing.compact;
  while (compact && problem_.weighing.kernel_values && *best.count > 0 && best.scores[*best.count - 1] == T(0)) {
    --*best.count;
  }
  if (compact || *best.count == best.room) return;
  const std::vector<std::int64_t> there(best.indices, best.indices + *best.count);
  sight_.for_each_seen(row, [&](std::int64_t key) {
    if (std::find(there.begin(), there.end(), key) != there.end()) return true;
    best.scores[*best.count] = -infinity<T>;
    best.indices[*best.count] = key;
    return ++*best.count < best.room;
  });
}

template <class T>
typename Finish<T>::RowNumbers Finish<T>::numbers(const PanelResult<T>& result, int r) const {
  const Weighing& weighing = problem_.weighing;
  const T factor = row_factor(weighing, result.max[r], result.sum[r]);
  if (!results_.lse && !results_.state && result.entropy == nullptr) return {0, 0, factor};
  const auto sum = static_cast<double>(result.sum[r]);
  // Exponents and their maxima are in units of ln(2); see kernels/block.h.
  const double logarithm = std::log2(std::abs(sum));
  const double reference = weighing.family == Family::exponential ? static_cast<double>(result.max[r]) : 0;
  const double log_sum = sum < 0 ? quiet_nan<double> : reference + logarithm;
  RowNumbers numbers{log_sum * std::numbers::ln2, 0, factor};
  if (result.entropy != nullptr) {
    numbers.entropy = (logarithm - static_cast<double>(result.entropy[r]) / sum) * std::numbers::ln2;
    // Weights of both signs have none; see kernels::WeighKernels.
    const bool mixed = weighing.family == Family::linear && result.max[r] != std::abs(result.sum[r]);
    if (mixed) numbers.entropy = quiet_nan<double>;
  }
  return numbers;
}

// Finds the weights of the best scores, before they are divided by their sum.
template <class T>
typename Finish<T>::RowNumbers Finish<T>::weigh_best(const RowBest<T>& best) {
  const std::int64_t count = std::min<std::int64_t>(*best.count, problem_.weighing.selected);
  best_weights_.assign(static_cast<std::size_t>(count), T(1));
  if (problem_.weighing.hard) return {0, 0, T(1)};
  const auto largest = static_cast<double>(best.scores[0]);
  double sum = 0, mean = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double score = static_cast<double>(best.scores[i]) - largest, weight = std::exp(score);
    best_weights_[static_cast<std::size_t>(i)] = static_cast<T>(weight);
    sum += weight;
    mean += weight * score;
  }
  return {largest + std::log(sum), std::log(sum) - mean / sum, static_cast<T>(1 / sum)};
}

// The weights of a panel's best scores, all at once, before they are multiplied by their rows' factors.
template <class T>
void Finish<T>::find_powers(const PanelResult<T>& result) {
  powers_.assign(static_cast<std::size_t>(result.panel.rows() * problem_.want_top), T(0));
  for (int r = 0; r < result.panel.rows(); ++r) {
    const RowBest<T> best = result.best_of(r);
    T* powers = powers_.data() + r * problem_.want_top;
    for (std::int32_t i = 0; i < *best.count; ++i) powers[i] = best.scores[i] - result.max[r];
  }
  strategy_.rows->exponentials(powers_.data(), static_cast<std::int64_t>(powers_.size()), T(1), powers_.data());
}

// Pools the values of the best scores, whose weights are best_weights_ times `factor`; of none in a row that is NaN.
template <class T>
void Finish<T>::write_selected(const RowBest<T>& best, T factor, const RowOf& row, Mass<T>* mass) {
  const std::int64_t Dv = problem_.Dv;
  const View& v = problem_.v;
  const bool direct = v.dtype() == dtype_of<T> && v.stride(3) == 1;
  const auto give = [&](std::int64_t key, T weight) {
    for_each_weights_row(row, [&](const MutableView& view, std::int64_t at) {
      view.as<T>()[place(view, row, at) + key * view.stride(3)] = weight;
    });
    if (mass != nullptr) mass->add(key, weight);
    if (mass == nullptr && results_.mass) add_to_mass(row, key, weight);
  };
  for_each_weights_row(row, [&](const MutableView& view, std::int64_t at) { fill_row(view, row, at, T(0)); });
  const bool nan = best_weights_.empty();
  sum_.assign(static_cast<std::size_t>(Dv), nan ? quiet_nan<T> : T(0));
  value_.resize(sum_.size());
  for (std::size_t i = 0; i < best_weights_.size(); ++i) {
    const std::int64_t key = best.indices[i];
    const T weight = best_weights_[i] * factor;
    give(key, weight);
    const T share = dropped(row, key);
    if (share == T(0)) continue;  // nothing of its value, NaN or not
    const T kept = weight * share;
    const std::int64_t at = row.batch * v.stride(0) + row.head / problem_.group * v.stride(1) + key * v.stride(2);
    if (!direct) load_row(v, at, v.stride(3), Dv, value_.data());
    const T* value = direct ? v.as<T>() + at : value_.data();
    for (std::size_t c = 0; c < sum_.size(); ++c) sum_[c] += kept * value[c];
  }
  if (nan && (mass != nullptr || results_.mass || results_.weights || results_.row_weights)) {
    sight_.for_each_seen(row, [&](std::int64_t key) {
      give(key, quiet_nan<T>);
      return true;
    });
  }
  write_out(sum_.data(), T(1), row);
}

// What dropout makes of a weight of 1.
template <class T>
T Finish<T>::dropped(const RowOf& row, std::int64_t key) const {
  const Dropping& dropping = problem_.dropping;
  if (dropping.threshold == 0) return T(1);
  const bool gone = random_bits(row_key(dropping, row), key) < dropping.threshold;
  return gone ? T(0) : static_cast<T>(dropping.factor);
}

template <class T>
void Finish<T>::write_numbers(const PanelResult<T>& result, int r, const RowOf& row, RowKind kind,
                              const RowNumbers& numbers) {
  const Results& to = results_;
  put<T>(to.lse, row, numbers.lse);
  put<T>(to.entropy, row, numbers.entropy);
  if (to.effective) put<T>(to.effective, row, kind == RowKind::empty ? 0 : std::exp(numbers.entropy));
  if (!to.state) return;
  switch (problem_.state_kind) {
    case PartialState::log_sum:
      return put<T>(to.state, row, numbers.lse);
    case PartialState::sum:
    case PartialState::count:
      return put<T>(to.state, row, kind == RowKind::empty ? 0 : static_cast<double>(result.sum[r]));
    case PartialState::best: {
      const RowBest<T> best = result.best_of(r);
      const bool regular = kind == RowKind::regular;
      put<T>(to.state, row,
             regular                  ? static_cast<double>(best.scores[0])
             : kind == RowKind::empty ? -infinity<double>
                                      : quiet_nan<double>);
      to.index.as<std::int64_t>()[place(to.index, row)] = regular ? best.indices[0] : -1;
      return;
    }
    case PartialState::answer:
    case PartialState::none:
      return;
  }
}

template <class T>
void Finish<T>::write_top(const RowBest<T>& best, int r, const RowOf& row, RowKind kind, T factor) {
  const bool nan = kind == RowKind::nan || (kind == RowKind::regular && best.is_nan());
  const std::int64_t all = problem_.want_top;
  const std::int64_t count = kind == RowKind::regular && !nan ? std::min<std::int64_t>(*best.count, all) : 0;
  const MutableView &top_weights = results_.top_weights, &top_indices = results_.top_indices;
  T* weights = top_weights.as<T>() + place(top_weights, row);
  const std::int64_t stride = top_weights.stride(3);
  if (problem_.weighing.family == Family::exponential) {
    const T* powers = powers_.data() + r * all;
    for (std::int64_t i = 0; i < count; ++i) {
      weights[i * stride] = best.scores[i] == -infinity<T> ? T(0) : powers[i] * factor;
    }
  } else if (problem_.weighing.family == Family::linear) {
    for (std::int64_t i = 0; i < count; ++i) weights[i * stride] = best.scores[i] * factor;
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      weights[i * stride] = i < problem_.weighing.selected ? best_weights_[static_cast<std::size_t>(i)] * factor : T(0);
    }
  }
  for (std::int64_t i = count; i < all; ++i) weights[i * stride] = nan ? quiet_nan<T> : T(0);
  if (!top_indices) return;
  std::int64_t* indices = top_indices.as<std::int64_t>() + place(top_indices, row);
  const std::int64_t index_stride = top_indices.stride(3);
  for (std::int64_t i = 0; i < all; ++i) indices[i * index_stride] = i < count ? best.indices[i] : -1;
}

template <class T>
void Finish<T>::write_chosen(const RowBest<T>& best, RowKind kind, const RowOf& row) const {
  const MutableView& chosen = results_.chosen;
  auto* to = chosen.as<std::int64_t>() + place(chosen, row);
  for (std::int64_t rank = 0; rank < problem_.weighing.selected; ++rank) {
    to[rank * chosen.stride(3)] = kind == RowKind::regular && rank < *best.count ? best.indices[rank] : -1;
  }
}

// Rows that are NaN give NaN to the keys that they see, and to no others.
template <class T>
void Finish<T>::add_mass(const PanelResult<T>& result, int p, Mass<T>& mass) {
  const Panel& panel = result.panel;
  if (!result.started) return;
  std::vector<T> factors(static_cast<std::size_t>(panel.lanes), T(0));
  for (int r = 0; r < panel.rows(); ++r) {
    const RowKind kind = kinds_[static_cast<std::size_t>(r)];
    if (kind == RowKind::empty) continue;
    const T factor = row_factor(problem_.weighing, result.max[r], result.sum[r]);
    if (kind == RowKind::regular && std::isfinite(factor)) {
      factors[static_cast<std::size_t>(r)] = factor;
      continue;
    }
    if (problem_.weighing.compact) {
      mass.add_nan_row(p, panel.lanes, r);
      continue;
    }
    sight_.for_each_seen(result.row(r), [&](std::int64_t key) {
      mass.add(key, quiet_nan<T>);
      return true;
    });
  }
  mass.add_panel(p, panel.lanes, result.max, factors.data());
}

template <class T>
void Finish<T>::write_out(const T* values, T factor, const RowOf& row) {
  const MutableView& out = results_.out;
  store_row(values, problem_.Dv, factor, out, place(out, row), out.stride(3));
}

template <class T>
T Finish<T>::empty_weight() const {
  switch (problem_.on_empty) {
    case OnEmpty::uniform:
      return T(1) / static_cast<T>(problem_.Tk);
    case OnEmpty::nan:
      return quiet_nan<T>;
    default:
      return T(0);
  }
}

template <class T>
void Finish<T>::write_empty(const RowOf& row, Mass<T>* mass) {
  if (problem_.on_empty == OnEmpty::error) {
    throw OptionError(message(problem_.operation, ": query ", row.query, " of head ", row.head, " of sequence ",
                              row.batch, " may see no key, and on_empty is error"));
  }
  if (problem_.Tk > 0 && problem_.on_empty != OnEmpty::zero && mass != nullptr) mass->add_everywhere(empty_weight());
  if (problem_.weighing.family == Family::selection) {
    for_each_weights_row(row,
                         [&](const MutableView& view, std::int64_t at) { fill_row(view, row, at, empty_weight()); });
    for (std::int64_t j = 0; mass == nullptr && results_.mass && problem_.on_empty != OnEmpty::zero && j < problem_.Tk;
         ++j) {
      add_to_mass(row, j, empty_weight());
    }
  }
  if (problem_.on_empty == OnEmpty::uniform && problem_.Tk > 0) {
    return write_out(uniform_value(row.batch, row.head / problem_.group), T(1), row);
  }
  const T value = problem_.on_empty == OnEmpty::nan ? quiet_nan<T> : T(0);
  write_out(std::vector<T>(static_cast<std::size_t>(problem_.Dv), value).data(), T(1), row);
}

template <class T>
const T* Finish<T>::uniform_value(std::int64_t batch, std::int64_t key_head) {
  const std::int64_t of = batch * problem_.Hk + key_head;
  if (uniform_of_ == of) return uniform_.data();
  uniform_of_ = of;
  uniform_.resize(static_cast<std::size_t>(problem_.Dv));
  std::vector<double> sum(uniform_.size(), 0.0);
  const View& v = problem_.v;
  for (std::int64_t j = 0; j < problem_.Tk; ++j) {
    load_row(v, batch * v.stride(0) + key_head * v.stride(1) + j * v.stride(2), v.stride(3), problem_.Dv,
             uniform_.data());
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += static_cast<double>(uniform_[c]);
  }
  for (std::size_t c = 0; c < sum.size(); ++c) uniform_[c] = static_cast<T>(sum[c] / static_cast<double>(problem_.Tk));
  return uniform_.data();
}

template <class T>
void Finish<T>::fill_row(const MutableView& view, const RowOf& row, std::int64_t at, T value) const {
  T* to = view.as<T>() + place(view, row, at);
  for (std::int64_t j = 0; j < problem_.Tk; ++j) to[j * view.stride(3)] = value;
}

template <class T>
void Finish<T>::add_to_mass(const RowOf& row, std::int64_t key, T weight) const {
  const MutableView& mass = results_.mass;
  mass.as<T>()[place(mass, row, key)] += weight;
}

template class Finish<float>;
template class Finish<double>;

}  // namespace qkv
