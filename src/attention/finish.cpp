// attention/finish.cpp: outputs, log-sum-exp, rows that see nothing, and whole matrices on request.
#include "attention/finish.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include <qkv/error.h>

#include "attention/load.h"
#include "base/message.h"

namespace qkv {
namespace {

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T quiet_nan = std::numeric_limits<T>::quiet_NaN();

}  // namespace

template <class T>
void Finish<T>::write(const PanelResult<T>& result) {
  if (result.finished && !results_.lse) return;
  const Panel& panel = result.panel;
  int r = 0;
  for (int h = 0; h < panel.heads; ++h) {
    for (int i = 0; i < panel.queries; ++i, ++r) {
      const std::int64_t head = result.head + panel.first_head + h, query = panel.first_query + i;
      const RowKind kind = result.finished ? RowKind::regular : write_row(result, r, head, query);
      if (results_.lse) write_lse(result, r, kind, head, query);
    }
  }
}

template <class T>
typename Finish<T>::RowKind Finish<T>::write_row(const PanelResult<T>& result, int r, std::int64_t head,
                                                 std::int64_t query) {
  const std::int64_t batch = result.of.batch;
  const RowKind kind = kind_of(result.started ? result.max[r] : -infinity<T>, result.started, batch, head, query);
  if (kind == RowKind::empty) {
    write_empty(batch, head, query);
  } else {
    const T factor = kind == RowKind::nan ? quiet_nan<T> : T(1) / result.sum[r];
    write_out(result.sums + r * result.sum_stride, factor, batch, head, query);
  }
  return kind;
}

template <class T>
void Finish<T>::write_lse(const PanelResult<T>& result, int r, RowKind kind, std::int64_t head, std::int64_t query) {
  double lse = -infinity<double>;
  if (kind == RowKind::nan) lse = quiet_nan<double>;
  if (kind == RowKind::regular) {
    // Maxima are in units of ln(2); see kernels/block.h.
    lse = (static_cast<double>(result.max[r]) + std::log2(static_cast<double>(result.sum[r]))) * std::numbers::ln2;
  }
  const MutableView& view = results_.lse;
  view.as<T>()[result.of.batch * view.stride(0) + head * view.stride(1) + query * view.stride(2)] = static_cast<T>(lse);
}

template <class T>
void Finish<T>::write_out(const T* row, T factor, std::int64_t batch, std::int64_t head, std::int64_t query) {
  const MutableView& out = results_.out;
  store_row(row, problem_.Dv, factor, out, batch * out.stride(0) + head * out.stride(1) + query * out.stride(2),
            out.stride(3));
}

// A maximum of -inf is a row that sees nothing, or one whose scores are all -inf or NaN: only the mask can tell.
template <class T>
typename Finish<T>::RowKind Finish<T>::kind_of(T max, bool started, std::int64_t batch, std::int64_t head,
                                               std::int64_t query) {
  if (max != -infinity<T>) return RowKind::regular;
  return started && sees_any(batch, head, query) ? RowKind::nan : RowKind::empty;
}

template <class T>
bool Finish<T>::sees_any(std::int64_t batch, std::int64_t head, std::int64_t query) {
  const KeyRange range = problem_.mask.has_ranges() ? problem_.mask.range(batch, query) : KeyRange{0, problem_.Tk};
  if (range.first >= range.last || !problem_.mask.has_pairs()) return range.first < range.last;
  const Panel row{0, query, 1, 1, 1};
  for (std::int64_t first = range.first; first < range.last; first += strategy_.block_keys) {
    const int keys = static_cast<int>(std::min<std::int64_t>(strategy_.block_keys, range.last - first));
    const PairTable table =
        fill_pairs<T>(problem_, {row, batch, head, &range.first, &range.last}, first, keys,
                      {*strategy_.panel, w_.pair_rows, w_.block, w_.kept, T(1)}, w_.shadow, w_.scores);
    if (table.state != PairState::none) return true;
  }
  return false;
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
void Finish<T>::write_empty(std::int64_t batch, std::int64_t head, std::int64_t query) {
  if (problem_.on_empty == OnEmpty::error) {
    throw OptionError(message(problem_.operation, ": query ", query, " of head ", head, " of sequence ", batch,
                              " may see no key, and on_empty is error"));
  }
  if (problem_.on_empty == OnEmpty::uniform && problem_.Tk > 0) {
    return write_out(uniform_value(batch, head / problem_.group), T(1), batch, head, query);
  }
  const T value = problem_.on_empty == OnEmpty::nan ? quiet_nan<T> : T(0);
  write_out(std::vector<T>(static_cast<std::size_t>(problem_.Dv), value).data(), T(1), batch, head, query);
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
void Finish<T>::write_pairs(const GroupOf& group, const T* max, const T* sum) {
  BlockLoop<T> loop(problem_, strategy_, w_);
  const std::int64_t lanes = strategy_.max_lanes;
  const auto for_each_row = [&](int p, auto each) {
    const Panel& panel = loop.panels()[static_cast<std::size_t>(p)];
    for (int r = 0; r < panel.rows(); ++r) {
      each(r, loop.head() + panel.first_head + r / panel.queries, panel.first_query + r % panel.queries);
    }
  };
  const auto write_row = [&](const MutableView& view, std::int64_t head, std::int64_t query, std::int64_t first,
                             std::int64_t keys, auto value) {
    T* row = view.as<T>() + group.batch * view.stride(0) + head * view.stride(1) + query * view.stride(2);
    for (std::int64_t j = 0; j < keys; ++j) row[(first + j) * view.stride(3)] = value(j);
  };

  if (const MutableView& view = results_.scores) {
    using Until = typename BlockLoop<T>::Until;
    const Until until = problem_.want_scores == ScoreStage::scaled   ? Until::scaled
                        : problem_.want_scores == ScoreStage::capped ? Until::capped
                                                                     : Until::masked;
    loop.begin_scores(group, {0, problem_.Tk}, until);
    for (int p = 0; p < static_cast<int>(loop.panels().size()); ++p) {
      for_each_row(p, [&](int, std::int64_t head, std::int64_t query) {
        write_row(view, head, query, 0, problem_.Tk, [](std::int64_t) { return -infinity<T>; });
      });
    }
    loop.visit_scores([&](int p, std::int64_t first, int keys) {
      const int stride = loop.panels()[static_cast<std::size_t>(p)].lanes;
      for_each_row(p, [&](int r, std::int64_t head, std::int64_t query) {
        write_row(view, head, query, first, keys, [&](std::int64_t j) { return loop.scores()[j * stride + r]; });
      });
    });
  }
  if (const MutableView& view = results_.weights) {
    loop.begin(group, {0, problem_.Tk});
    std::vector<RowKind> kinds(loop.panels().size() * static_cast<std::size_t>(lanes), RowKind::regular);
    for (int p = 0; p < static_cast<int>(loop.panels().size()); ++p) {
      for_each_row(p, [&](int r, std::int64_t head, std::int64_t query) {
        RowKind& kind = kinds[static_cast<std::size_t>(p * lanes + r)];
        kind = kind_of(max[p * lanes + r], true, group.batch, head, query);
        const T value = kind == RowKind::empty ? empty_weight() : T(0);
        write_row(view, head, query, 0, problem_.Tk, [&](std::int64_t) { return value; });
      });
    }
    loop.visit_scores([&](int p, std::int64_t first, int keys) {
      const int stride = loop.panels()[static_cast<std::size_t>(p)].lanes;
      T* weights = loop.scores();
      const bool excludes = loop.mark_excluded(p);
      // With the final maxima as the running ones, weigh gives the final exponentials.
      std::copy_n(max + p * lanes, stride, loop.max(p));
      std::fill_n(w_.row_max, stride, -infinity<T>);
      strategy_.weigh({weights, stride, keys, w_.row_max, loop.max(p), loop.sum(p), w_.rescale});
      for_each_row(p, [&](int r, std::int64_t head, std::int64_t query) {
        const RowKind kind = kinds[static_cast<std::size_t>(p * lanes + r)];
        if (kind == RowKind::empty) return;
        const T factor = kind == RowKind::nan ? quiet_nan<T> : T(1) / sum[p * lanes + r];
        write_row(view, head, query, first, keys, [&](std::int64_t j) {
          const auto at = static_cast<std::size_t>(j * stride + r);
          // What is excluded weighs nothing, even in a row that is NaN.
          return excludes && loop.excluded()[at] == -infinity<T> ? T(0) : weights[at] * factor;
        });
      });
    });
  }
}

template class Finish<float>;
template class Finish<double>;

}  // namespace qkv
