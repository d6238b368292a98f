// attention/selection.cpp: keeps the best scores of each row in a heap.
#include "attention/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

namespace qkv {
namespace {

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

// Keys that are compared with the same thresholds: few, as thresholds rise quickly at first.
constexpr int keys_at_once = 32;

}  // namespace

template <class T>
void RowBest<T>::add(T score, std::int64_t index) {
  if (is_nan()) return;
  if (std::isnan(score)) {
    *count = -1;
    return;
  }
  const auto worse = [this](std::int64_t a, std::int64_t b) {
    return scores[a] != scores[b] ? scores[a] < scores[b] : indices[a] > indices[b];
  };
  const auto exchange = [this](std::int64_t a, std::int64_t b) {
    std::swap(scores[a], scores[b]);
    std::swap(indices[a], indices[b]);
  };
  if (*count < room) {
    std::int64_t at = (*count)++;
    scores[at] = score;
    indices[at] = index;
    for (; at > 0 && worse(at, (at - 1) / 2); at = (at - 1) / 2) exchange(at, (at - 1) / 2);
    return;
  }
  if (score < scores[0] || (score == scores[0] && index > indices[0])) return;
  scores[0] = score;
  indices[0] = index;
  for (std::int64_t at = 0;;) {
    std::int64_t worst = at;
    for (const std::int64_t child : {2 * at + 1, 2 * at + 2}) {
      if (child < room && worse(child, worst)) worst = child;
    }
    if (worst == at) return;
    exchange(at, worst);
    at = worst;
  }
}

template <class T>
void RowBest<T>::sort() {
  // Takes the heap apart: the worst goes last.
  const std::int32_t all = *count;
  if (all <= 1) return;
  std::vector<std::pair<T, std::int64_t>> best;
  best.reserve(static_cast<std::size_t>(all));
  for (std::int32_t i = 0; i < all; ++i) best.emplace_back(scores[i], indices[i]);
  std::sort(best.begin(), best.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  for (std::int32_t i = 0; i < all; ++i) std::tie(scores[i], indices[i]) = best[static_cast<std::size_t>(i)];
}

template <class T>
void Selection<T>::begin(int panels) {
  const std::int64_t rows = panels * strategy_.max_lanes;
  std::fill_n(w_.best_counts, rows, 0);
  std::fill_n(w_.thresholds, rows, -infinity<T>);
}

template <class T>
RowBest<T> Selection<T>::row(int p, int r) const {
  const std::int64_t at = p * strategy_.max_lanes + r, room = problem_.weighing.kept;
  if (room == 0) return {nullptr, nullptr, nullptr, 0};
  return {w_.best_scores + at * room, w_.best_indices + at * room, w_.best_counts + at, room};
}

template <class T>
void Selection<T>::add(int p, const Panel& panel, const T* scores, int keys, std::int64_t first) {
  T* thresholds = w_.thresholds + p * strategy_.max_lanes;
  const int lanes = panel.lanes, rows = panel.rows();
  for (int lane = rows; lane < lanes; ++lane) thresholds[lane] = infinity<T>;
  for (int j = 0; j < keys; j += keys_at_once) {
    for (int lane = lanes; lane < strategy_.vector; ++lane) thresholds[lane] = thresholds[lane - lanes];
    const int count =
        strategy_.weighs->above({scores, lanes, j, std::min(j + keys_at_once, keys), thresholds, w_.places});
    for (int i = 0; i < count; ++i) {
      const std::int32_t place = w_.places[i];
      const int r = place % lanes;
      if (r >= rows) continue;
      const RowBest<T> best = row(p, r);
      RowBest<T>(best).add(scores[place], first + place / lanes);
      if (best.is_nan()) {
        thresholds[r] = infinity<T>;
      } else if (*best.count == best.room) {
        thresholds[r] = best.scores[0];
      }
    }
  }
}

template struct RowBest<float>;
template struct RowBest<double>;
template class Selection<float>;
template class Selection<double>;

}  // namespace qkv
