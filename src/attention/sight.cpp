// attention/sight.cpp: ranges of keys, tables of pairs, and what they come to for a block.
#include "attention/sight.h"

#include <algorithm>

namespace qkv {

template <class T>
void Sight<T>::begin(const PanelGroup& group, KeyRange keys, bool masked, T unit, bool tables_valid) {
  group_ = group;
  masked_ = masked;
  unit_ = unit;
  for (int p = 0; p < group.count(); ++p) find_ranges(p, keys);
  if (problem_.mask.has_pairs() && !tables_valid) {
    std::fill_n(w_.tables, group.count() * w_.blocks, PairTable{PairState::unknown});
  }
}

template <class T>
void Sight<T>::find_ranges(int p, KeyRange keys) {
  const Panel& panel = group_.panel(p);
  Ranges& found = ranges_[static_cast<std::size_t>(p)];
  found = {keys.first, keys.first, keys.last, keys.last, false, false, false};
  std::int64_t* first = w_.first + p * strategy_.max_lanes;
  std::int64_t* last = w_.last + p * strategy_.max_lanes;
  if (!problem_.mask.has_ranges() || !masked_) {
    if (problem_.mask.has_pairs()) {
      std::fill_n(first, panel.rows(), keys.first);
      std::fill_n(last, panel.rows(), keys.last);
    }
    return;
  }
  if (find_rising_ranges(p, keys)) return;
  found.min_first = found.min_last = keys.last;
  found.max_first = found.max_last = keys.first;
  for (int r = 0; r < panel.rows(); ++r) {
    const KeyRange seen = problem_.mask.range(group_.batch, panel.first_query + r % panel.queries);
    first[r] = std::max(seen.first, keys.first);
    last[r] = std::min(seen.last, keys.last);
    if (first[r] >= last[r]) {
      found.empty_rows = true;
      first[r] = last[r] = keys.first;
      continue;
    }
    if (found.max_last > keys.first) {
      found.gaps |= first[r] > found.max_last || last[r] < found.min_first;
    }
    found.min_first = std::min(found.min_first, first[r]);
    found.max_first = std::max(found.max_first, first[r]);
    found.min_last = std::min(found.min_last, last[r]);
    found.max_last = std::max(found.max_last, last[r]);
  }
}

// The same where positions alone make the ranges, and no row is without keys: as then both ends rise from row to row,
// by one at most, the first and the last row say it all. A row between two that see something does, too.
template <class T>
bool Sight<T>::find_rising_ranges(int p, KeyRange keys) {
  const Panel& panel = group_.panel(p);
  const int rows = panel.rows();
  if (panel.queries != rows || problem_.mask.queries_have_lengths()) return false;
  const KeyBand band = problem_.mask.band(group_.batch);
  const auto range_of = [&](int r) {
    const KeyRange seen = band.at(panel.first_query + r);
    return KeyRange{std::max(seen.first, keys.first), std::min(seen.last, keys.last)};
  };
  const KeyRange top = range_of(0), bottom = range_of(rows - 1);
  if (top.first >= top.last || bottom.first >= bottom.last) return false;
  ranges_[static_cast<std::size_t>(p)] = {top.first, bottom.first, top.last, bottom.last, false, false, true};
  std::int64_t* first = w_.first + p * strategy_.max_lanes;
  std::int64_t* last = w_.last + p * strategy_.max_lanes;
  for (int r = 0; r < rows; ++r) {
    const KeyRange seen = range_of(r);
    first[r] = seen.first;
    last[r] = seen.last;
  }
  return true;
}

template <class T>
KeyRange Sight<T>::all() const {
  KeyRange all{ranges(0).min_first, ranges(0).max_last};
  for (int p = 1; p < group_.count(); ++p) {
    all = {std::min(all.first, ranges(p).min_first), std::max(all.last, ranges(p).max_last)};
  }
  return all;
}

template <class T>
bool Sight<T>::excludes() const {
  bool excludes = false;
  for (int p = 0; p < group_.count(); ++p) excludes |= !part(p).skip && part(p).excludes();
  return excludes;
}

template <class T>
bool Sight<T>::look_at(std::int64_t first, std::int64_t last) {
  block_.first = last;
  block_.last = first;
  for (int p = 0; p < group_.count(); ++p) {
    Part& part = parts_[static_cast<std::size_t>(p)];
    part = classify(p, first, last);
    if (part.skip) continue;
    block_.first = std::min(block_.first, part.first);
    block_.last = std::max(block_.last, part.first + part.keys);
  }
  return block_.first < block_.last;
}

template <class T>
typename Sight<T>::Part Sight<T>::classify(int p, std::int64_t block_first, std::int64_t block_last) {
  const Ranges& found = ranges(p);
  const std::int64_t from = std::max(block_first, found.min_first), to = std::min(block_last, found.max_last);
  Part part{true, from, static_cast<int>(std::max<std::int64_t>(to - from, 0)), false, {}, {}};
  if (from >= to) return part;
  part.skip = false;
  part.limited = found.empty_rows || found.max_first > from || found.min_last < to;
  if (!problem_.mask.has_pairs() || !masked_) return part;

  const std::int64_t index = p * w_.blocks + (strategy_.share_pairs ? block_first / strategy_.block_keys : 0);
  part.pairs = {w_.added == nullptr ? nullptr : w_.added + index * w_.block * strategy_.max_lanes,
                w_.excluded == nullptr ? nullptr : w_.excluded + index * w_.block, w_.seen + index * w_.block};
  PairTable& table = w_.tables[index];
  if (!strategy_.share_pairs || table.state == PairState::unknown) {
    table = fill_pairs<T>(problem_, {group_.panel(p), group_.batch, group_.head, first(p), last(p)}, from, part.keys,
                          {*strategy_.panel, w_.pair_rows, w_.block, w_.kept, unit_}, part.pairs);
  }
  part.table = table;
  part.skip = table.state == PairState::none;
  part.limited = false;  // the table has the ranges in it
  return part;
}

template <class T>
bool Sight<T>::find_gaps() {
  bool possible = false;
  std::int64_t reached = block_.first;
  for (int p = 0; p < group_.count(); ++p) {
    const Part& part = this->part(p);
    if (part.skip) continue;
    possible |= part.table.gaps || (part.limited && ranges(p).gaps) || part.first > reached;
    reached = std::max(reached, part.first + part.keys);
  }
  if (!possible) return false;
  const auto keys = static_cast<std::size_t>(block_.last - block_.first);
  std::fill_n(w_.visible, keys + 1, 0);
  const auto mark = [&](std::int64_t first, std::int64_t last) {
    ++w_.visible[first - block_.first];
    --w_.visible[last - block_.first];
  };
  for (int p = 0; p < group_.count(); ++p) {
    const Part& part = this->part(p);
    if (part.skip) continue;
    const std::int64_t part_last = part.first + part.keys;
    if (part.table.state == PairState::mixed) {
      for (int j = 0; j < part.keys; ++j) {
        if (part.pairs.seen[j] == T(0)) mark(part.first + j, part.first + j + 1);
      }
    } else if (part.limited) {
      for (int r = 0; r < group_.panel(p).rows(); ++r) {
        const std::int64_t from = std::max(first(p)[r], part.first), to = std::min(last(p)[r], part_last);
        if (from < to) mark(from, to);
      }
    } else {
      mark(part.first, part_last);
    }
  }
  bool gaps = false;
  std::int32_t open = 0;
  for (std::size_t j = 0; j < keys; ++j) {
    open += w_.visible[j];
    w_.visible[j] = open;
    gaps |= open == 0;
  }
  return gaps;
}

template class Sight<float>;
template class Sight<double>;

}  // namespace qkv
