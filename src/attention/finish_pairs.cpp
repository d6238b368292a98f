// attention/finish_pairs.cpp: whole matrices of weights and scores on request, in a second pass over the keys.
#include <algorithm>
#include <vector>

#include "attention/finish.h"
#include "base/numbers.h"

namespace qkv {

template <class T>
bool Finish<T>::needs_pairs() const {
  return results_.scores || all_weights() || some_weights();
}

template <class T>
void Finish<T>::write_pairs(const GroupOf& group, const T* max, const T* sum) {
  if (results_.scores) write_scores(group);
  if (all_weights() || some_weights()) write_weights(group, max, sum);
}

// Where few are selected, finish.cpp has written their weights.
template <class T>
bool Finish<T>::all_weights() const {
  const bool wanted = results_.weights || (results_.mass && strategy_.decode);
  return wanted && problem_.weighing.family != Family::selection;
}

template <class T>
bool Finish<T>::some_weights() const {
  return results_.row_weights && problem_.weighing.family != Family::selection;
}

// Whether the weights of all of the panel's rows are wanted, or of some.
template <class T>
bool Finish<T>::weights_of(const Panel& panel) const {
  if (all_weights() || !some_weights()) return all_weights();
  return std::any_of(problem_.want_rows.begin(), problem_.want_rows.end(), [&](std::int64_t row) {
    return row >= panel.first_query && row < panel.first_query + panel.queries;
  });
}

template <class T>
void Finish<T>::write_scores(const GroupOf& group) {
  using Until = typename BlockLoop<T>::Until;
  const MutableView& view = results_.scores;
  BlockLoop<T> loop(problem_, strategy_, w_);
  const Until until = problem_.want_scores == ScoreStage::scaled   ? Until::scaled
                      : problem_.want_scores == ScoreStage::capped ? Until::capped
                                                                   : Until::masked;
  loop.begin_scores(group, {0, problem_.Tk}, until);
  for (const Panel& panel : loop.panels()) {
    for (int r = 0; r < panel.rows(); ++r) {
      const RowOf row = row_of(panel, r, group.batch, loop.head());
      fill_row(view, row, row.query, -infinity<T>);
    }
  }
  const auto all = [](int) { return true; };
  loop.visit_scores(all, [&](int p, std::int64_t first, int keys) {
    const Panel& panel = loop.panels()[static_cast<std::size_t>(p)];
    for (int r = 0; r < panel.rows(); ++r) {
      const RowOf row = row_of(panel, r, group.batch, loop.head());
      T* to = view.as<T>() + place(view, row);
      for (int j = 0; j < keys; ++j) to[(first + j) * view.stride(3)] = loop.scores()[j * panel.lanes + r];
    }
  });
}

template <class T>
void Finish<T>::write_weights(const GroupOf& group, const T* max, const T* sum) {
  const std::int64_t lanes = strategy_.max_lanes;
  const bool masses = results_.mass && strategy_.decode;
  const auto panels = strategy_.panels_of(group.group);
  std::vector<bool> wanted;  // per panel
  for (const Panel& panel : panels) wanted.push_back(weights_of(panel));
  if (std::find(wanted.begin(), wanted.end(), true) == wanted.end()) return;
  BlockLoop<T> loop(problem_, strategy_, w_);
  loop.begin(group, {0, problem_.Tk});
  std::vector<RowKind> kinds(panels.size() * static_cast<std::size_t>(lanes), RowKind::regular);
  for (std::size_t p = 0; p < panels.size(); ++p) {
    if (!wanted[p]) continue;
    const Panel& panel = panels[p];
    for (int r = 0; r < panel.rows(); ++r) {
      const std::size_t at = p * static_cast<std::size_t>(lanes) + static_cast<std::size_t>(r);
      const RowOf row = row_of(panel, r, group.batch, loop.head());
      kinds[at] = kind_of(max[at], sum[at], true, row);
      const T value = kinds[at] == RowKind::empty ? empty_weight() : T(0);
      for_each_weights_row(row, [&](const MutableView& view, std::int64_t i) { fill_row(view, row, i, value); });
      for (std::int64_t j = 0; masses && value != T(0) && j < problem_.Tk; ++j) add_to_mass(row, j, value);
    }
  }
  const auto is_wanted = [&](int p) { return wanted[static_cast<std::size_t>(p)]; };
  loop.visit_scores(is_wanted, [&](int p, std::int64_t first, int keys) {
    const Panel& panel = panels[static_cast<std::size_t>(p)];
    const int stride = panel.lanes;
    const T* weights = loop.scores();
    const bool excludes = loop.mark_excluded(p);
    // With the final maxima as the running ones, weigh gives the final exponentials.
    std::copy_n(max + p * lanes, stride, loop.max(p));
    std::fill_n(w_.row_max, stride, -infinity<T>);
    loop.weigh(p);
    for (int r = 0; r < panel.rows(); ++r) {
      const auto at = static_cast<std::size_t>(p * lanes + r);
      const RowOf row = row_of(panel, r, group.batch, loop.head());
      if (kinds[at] == RowKind::empty) continue;
      const T factor = kinds[at] == RowKind::nan ? quiet_nan<T> : row_factor(problem_.weighing, max[at], sum[at]);
      const auto weight = [&](int j) {
        // What is excluded weighs nothing, even in a row that is NaN.
        const bool excluded = (excludes && loop.excluded()[j * stride + r] == -infinity<T>) ||
                              (problem_.weighing.compact && weights[j * stride + r] == T(0));
        return excluded ? T(0) : weights[j * stride + r] * factor;
      };
      for_each_weights_row(row, [&](const MutableView& view, std::int64_t i) {
        T* to = view.as<T>() + place(view, row, i);
        for (int j = 0; j < keys; ++j) to[(first + j) * view.stride(3)] = weight(j);
      });
      for (int j = 0; masses && j < keys; ++j) add_to_mass(row, first + j, weight(j));
    }
  });
}

template bool Finish<float>::needs_pairs() const;
template bool Finish<double>::needs_pairs() const;
template void Finish<float>::write_pairs(const GroupOf&, const float*, const float*);
template void Finish<double>::write_pairs(const GroupOf&, const double*, const double*);

}  // namespace qkv
