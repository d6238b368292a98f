// attention/selection.cpp: keeps the best scores of each row: few in sorted slots, more in a heap.
#include "attention/selection.h"

#include <algorithm>
#include <cmath>
#include <span>
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
  if (all <= 1) return;
  std::vector<std::pair<T, std::int64_t>> best;
  best.reserve(static_cast<std::size_t>(all));
  for (std::int32_t i = 0; i < all; ++i) best.emplace_back(scores[i], indices[i]);
  std::sort(best.begin(), best.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  for (std::int32_t i = 0; i < all; ++i) std::tie(scores[i], indices[i]) = best[static_cast<std::size_t>(i)];
}

template <class T>
void Selection<T>::begin(std::span<const Panel> panels) {
  const auto count = static_cast<int>(panels.size());
  std::fill_n(w_.best_counts, count * strategy_.max_lanes, 0);
  if (!has_slots()) std::fill_n(w_.thresholds, count * strategy_.max_lanes, -infinity<T>);
  for (int p = 0; has_slots() && p < count; ++p) begin_slots(p, panels[static_cast<std::size_t>(p)]);
}

template <class T>
void Selection<T>::add(int p, const Panel& panel, T* scores, int keys, std::int64_t first) {
  has_slots() ? add_to_slots(p, panel, scores, keys, first) : add_to_heaps(p, panel, scores, keys, first);
}

template <class T>
void Selection<T>::end(std::span<const Panel> panels) {
  for (int p = 0; p < static_cast<int>(panels.size()); ++p) {
    const Panel& panel = panels[static_cast<std::size_t>(p)];
    for (int r = 0; r < panel.rows(); ++r) {
      has_slots() ? take_from_slots(p, panel, r) : row(p, r).sort();
    }
  }
}

template <class T>
RowBest<T> Selection<T>::row(int p, int r) const {
  const std::int64_t at = p * strategy_.max_lanes + r, room = problem_.weighing.kept;
  if (room == 0) return {nullptr, nullptr, nullptr, 0};
  return {w_.best_scores + at * room, w_.best_indices + at * room, w_.best_counts + at, room};
}

// Lanes beyond the rows are full of the best there is.
template <class T>
void Selection<T>::begin_slots(int p, const Panel& panel) {
  T* slot = w_.slot_scores + slots_of(p);
  for (int lane = 0; lane < strategy_.max_lanes; ++lane) {
    slot[lane] = lane % panel.lanes < panel.rows() ? -infinity<T> : infinity<T>;
  }
  for (int i = 1; i < kernels::best_slots; ++i) {
    std::copy_n(slot, strategy_.max_lanes, slot + i * strategy_.max_lanes);
  }
}

template <class T>
void Selection<T>::add_to_slots(int p, const Panel& panel, T* scores, int keys, std::int64_t first) {
  strategy_.best->keep({scores, panel.lanes, keys, first, static_cast<int>(problem_.weighing.kept),
                        w_.slot_scores + slots_of(p), w_.slot_indices + slots_of(p), strategy_.max_lanes, w_.marks,
                        w_.queue, w_.queue_numbers});
}

// A row has several lanes where a vector holds several keys, and is the best of them.
template <class T>
void Selection<T>::take_from_slots(int p, const Panel& panel, int r) {
  RowBest<T> best = row(p, r);
  const std::int64_t stride = strategy_.max_lanes;
  const T* scores = w_.slot_scores + slots_of(p);
  const kernels::KeyIndex<T>* indices = w_.slot_indices + slots_of(p);
  if (panel.lanes >= strategy_.vector) {
    std::int32_t count = 0;
    for (std::int64_t i = 0; i < best.room; ++i) {
      best.scores[i] = scores[i * stride + r];
      best.indices[i] = indices[i * stride + r];
      count += best.scores[i] > -infinity<T> ? 1 : 0;
    }
    *best.count = std::isnan(best.scores[0]) ? -1 : count;
    return;
  }
  for (int lane = r; lane < strategy_.vector; lane += panel.lanes) {
    for (std::int64_t at = lane; at < best.room * stride && scores[at] != -infinity<T>; at += stride) {
      best.add(scores[at], indices[at]);
    }
  }
  best.sort();
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
void Selection<T>::add_to_heaps(int p, const Panel& panel, const T* scores, int keys, std::int64_t first) {
  T* thresholds = w_.thresholds + p * strategy_.max_lanes;
  const int lanes = panel.lanes, rows = panel.rows();
  guess_thresholds(p, panel, scores, keys);
  for (int lane = rows; lane < lanes; ++lane) thresholds[lane] = infinity<T>;
  for (int j = 0; j < keys; j += keys_at_once) {
    for (int lane = lanes; lane < strategy_.vector; ++lane) thresholds[lane] = thresholds[lane - lanes];
    const int count =
        strategy_.best->above({scores, lanes, j, std::min(j + keys_at_once, keys), thresholds, w_.places});
    for (int i = 0; i < count; ++i) {
      const std::int32_t place = w_.places[i];
      const int r = place % lanes;
      if (r >= rows || scores[place] <= thresholds[r]) continue;
      RowBest<T> best = row(p, r);
      best.add(scores[place], first + place / lanes);
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
