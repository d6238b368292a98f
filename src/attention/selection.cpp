// attention/selection.cpp: keeps the best scores of each row: few in a sorted list, more in a heap.
#include "attention/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "base/numbers.h"

namespace qkv {
namespace {

// Keys that are compared with the same thresholds: few, as thresholds rise quickly at first.
constexpr int keys_at_once = 64;

// At most so many best scores per row have their first thresholds guessed: see guess_thresholds.
constexpr std::int64_t most_guessed = 64;

}  // namespace

template <class T>
void RowBest<T>::add(T score, std::int64_t index) {
  if (is_nan()) return;
  if (std::isnan(score)) {
    *count = -1;
    return;
  }
  room <= few ? insert(score, index) : add_to_heap(score, index);
}

// Keys come in rising order, so a score goes behind its equals. First its place is counted, then all behind it move. A
// fixed number of steps, none of which waits for another: no branch that would be guessed wrongly.
template <class T>
void RowBest<T>::insert(T score, std::int64_t index) {
  T old_scores[few];
  std::int64_t old_indices[few];
  for (int i = 0; i < few; ++i) old_scores[i] = scores[i];
  for (int i = 0; i < few; ++i) old_indices[i] = indices[i];
  std::int32_t place = 0;
  for (int i = 0; i < few; ++i) place += old_scores[i] >= score ? 1 : 0;
  for (int i = 1; i < few; ++i) scores[i] = i > place ? old_scores[i - 1] : old_scores[i];
  for (int i = 1; i < few; ++i) indices[i] = i > place ? old_indices[i - 1] : old_indices[i];
  if (place < few) {
    scores[place] = score;
    indices[place] = index;
  }
  *count += *count < room ? 1 : 0;
}

template <class T>
void RowBest<T>::add_to_heap(T score, std::int64_t index) {
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
  const std::int32_t all = *count;
  if (room <= few || all <= 1) return;
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
  std::fill_n(w_.best_scores, rows * w_.best_slots, -infinity<T>);
  std::fill_n(w_.thresholds, rows, -infinity<T>);
}

template <class T>
RowBest<T> Selection<T>::row(int p, int r) const {
  const std::int64_t at = p * strategy_.max_lanes + r, room = problem_.weighing.kept;
  if (room == 0) return {nullptr, nullptr, nullptr, 0};
  return {w_.best_scores + at * w_.best_slots, w_.best_indices + at * w_.best_slots, w_.best_counts + at, room};
}

// In the first block, almost every score is among the best so far. Of as many groups of keys as scores are kept, each
// has a largest score, and the least of these is no better than the worst that will be kept: what is below it need not
// be looked at. With 8 kept of a block of 64 random scores, about 21 of them are left to look at.
template <class T>
void Selection<T>::guess_thresholds(int p, const Panel& panel, const T* scores, int keys) {
  const auto groups = static_cast<int>(problem_.weighing.kept);
  const int lanes = panel.lanes, size = groups > 0 ? keys / groups : 0;
  T* thresholds = w_.thresholds + p * strategy_.max_lanes;
  for (int r = 0; r < panel.rows(); ++r) {
    if (*row(p, r).count != 0) return;
  }
  if (groups > most_guessed || size < 2) return;
  T* highest = w_.factors;  // of one group; not needed until the block is pooled
  for (int group = 0; group < groups; ++group) {
    const T* from = scores + group * size * lanes;
    std::copy_n(from, lanes, highest);
    for (int j = 1; j < size; ++j) {
      for (int lane = 0; lane < lanes; ++lane) highest[lane] = std::max(from[j * lanes + lane], highest[lane]);
    }
    for (int lane = 0; lane < lanes; ++lane) {
      const bool lower = group == 0 || highest[lane] < thresholds[lane];
      thresholds[lane] = lower ? highest[lane] : thresholds[lane];
    }
  }
  // Those that are equal to it are wanted too. A NaN knows no order, and is no threshold.
  for (int lane = 0; lane < lanes; ++lane) {
    const T guess = std::nextafter(thresholds[lane], -infinity<T>);
    thresholds[lane] = std::isnan(guess) ? -infinity<T> : guess;
  }
}

template <class T>
void Selection<T>::add(int p, const Panel& panel, const T* scores, int keys, std::int64_t first) {
  T* thresholds = w_.thresholds + p * strategy_.max_lanes;
  const int lanes = panel.lanes, rows = panel.rows();  // lanes are a power of two
  const int shift = std::countr_zero(static_cast<unsigned>(lanes));
  guess_thresholds(p, panel, scores, keys);
  for (int lane = rows; lane < lanes; ++lane) thresholds[lane] = infinity<T>;
  for (int j = 0; j < keys; j += keys_at_once) {
    for (int lane = lanes; lane < strategy_.vector; ++lane) thresholds[lane] = thresholds[lane - lanes];
    const int count =
        strategy_.weighs->above({scores, lanes, j, std::min(j + keys_at_once, keys), thresholds, w_.places});
    for (int i = 0; i < count; ++i) {
      const std::int32_t place = w_.places[i];
      const int r = place & (lanes - 1);
      if (r >= rows || scores[place] <= thresholds[r]) continue;
      RowBest<T> best = row(p, r);
      best.add(scores[place], first + (place >> shift));
      if (best.is_nan()) {
        thresholds[r] = infinity<T>;
      } else if (*best.count == best.room) {
        thresholds[r] = best.worst();
      }
    }
  }
}

template struct RowBest<float>;
template struct RowBest<double>;
template class Selection<float>;
template class Selection<double>;

}  // namespace qkv
