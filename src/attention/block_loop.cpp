// attention/block_loop.cpp: the loop over blocks of keys.
#include "attention/block_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "attention/load.h"
#include "base/divide_up.h"

namespace qkv {
namespace {

template <class T>
constexpr T minus_infinity = -std::numeric_limits<T>::infinity();

// A block of so many values at most fits half of the first-level cache wherever it lies, and is not copied.
constexpr std::int64_t few_values = 4096;

}  // namespace

template <class T>
BlockLoop<T>::BlockLoop(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace, bool tables_valid)
    : problem_(problem), strategy_(strategy), w_(workspace), tables_valid_(tables_valid) {}

template <class T>
void BlockLoop<T>::begin(const GroupOf& group, KeyRange keys, Until until, double unit) {
  group_ = group;
  until_ = until;
  unit_ = static_cast<T>(unit);
  end_ = keys.last;
  const auto from = static_cast<std::size_t>(group.group * strategy_.group_panels);
  panels_ = std::span(strategy_.panels).subspan(from);
  panels_ = panels_.first(std::min(panels_.size(), static_cast<std::size_t>(strategy_.group_panels)));
  for (int p = 0; p < static_cast<int>(panels_.size()); ++p) {
    pack_queries(p);
    find_ranges(p, keys);
    std::fill_n(max(p), strategy_.max_lanes, minus_infinity<T>);
    std::fill_n(sum(p), strategy_.max_lanes, T(0));
  }
  if (problem_.mask.has_pairs() && !tables_valid_)
    std::fill_n(w_.tables, panels_.size() * static_cast<std::size_t>(w_.blocks), PairTable{PairState::unknown});
}

template <class T>
void BlockLoop<T>::pack_queries(int p) {
  const Panel& panel = panels_[static_cast<std::size_t>(p)];
  const View& q = problem_.q;
  const std::int64_t D = problem_.D;
  const T scale = static_cast<T>(problem_.scale * static_cast<double>(unit_));
  const auto offset = [&](int r) {
    const std::int64_t h = head() + panel.first_head + r / panel.queries, i = panel.first_query + r % panel.queries;
    return group_.batch * q.stride(0) + h * q.stride(1) + i * q.stride(2);
  };
  if (strategy_.decode) {
    const std::int64_t width = strategy_.query_width(problem_);
    std::fill_n(queries(p), panel.lanes * width, T(0));
    for (int r = 0; r < panel.rows(); ++r) {
      load_row(q, offset(r), q.stride(3), D, w_.row);
      strategy_.rows->scale(w_.row, static_cast<int>(D), scale, queries(p) + r * width);
    }
    return;
  }
  const bool direct = q.dtype() == dtype_of<T> && q.stride(3) == 1;
  if (!direct) {
    for (int r = 0; r < panel.rows(); ++r) load_row(q, offset(r), q.stride(3), D, w_.row + r * D);
  }
  strategy_.panel->transpose({direct ? q.as<T>() + offset(0) : w_.row, direct ? q.stride(2) : D, panel.rows(),
                              static_cast<int>(D), scale, queries(p), panel.lanes});
}

template <class T>
void BlockLoop<T>::find_ranges(int p, KeyRange keys) {
  const Panel& panel = panels_[static_cast<std::size_t>(p)];
  PanelState& state = states_[static_cast<std::size_t>(p)];
  state = {false, false, keys.first, keys.first, keys.last, keys.last, false, false};
  std::int64_t* first = w_.first + p * strategy_.max_lanes;
  std::int64_t* last = w_.last + p * strategy_.max_lanes;
  if (!problem_.mask.has_ranges() || until_ != Until::masked) {
    if (problem_.mask.has_pairs()) {
      std::fill_n(first, panel.rows(), keys.first);
      std::fill_n(last, panel.rows(), keys.last);
    }
    return;
  }
  state.min_first = state.min_last = keys.last;
  state.max_first = state.max_last = keys.first;
  for (int r = 0; r < panel.rows(); ++r) {
    const KeyRange seen = problem_.mask.range(group_.batch, panel.first_query + r % panel.queries);
    first[r] = std::max(seen.first, keys.first);
    last[r] = std::min(seen.last, keys.last);
    if (first[r] >= last[r]) {
      state.empty_rows = true;
      first[r] = last[r] = keys.first;
      continue;
    }
    if (state.max_last > keys.first) {
      state.gaps |= first[r] > state.max_last || last[r] < state.min_first;
    }
    state.min_first = std::min(state.min_first, first[r]);
    state.max_first = std::max(state.max_first, first[r]);
    state.min_last = std::min(state.min_last, last[r]);
    state.max_last = std::max(state.max_last, last[r]);
  }
}

template <class T>
void BlockLoop<T>::pool_all(const MutableView& out) {
  visit_scores([&](int p, std::int64_t, int) { pool_block(p, out); });
}

template <class T>
void BlockLoop<T>::visit_scores(FunctionRef<void(int, std::int64_t, int)> visit) {
  const int count = static_cast<int>(panels_.size());
  std::int64_t first = end_, last = 0;
  for (int p = 0; p < count; ++p) {
    first = std::min(first, states_[static_cast<std::size_t>(p)].min_first);
    last = std::max(last, states_[static_cast<std::size_t>(p)].max_last);
  }
  const std::int64_t step = strategy_.block_keys;
  for (std::int64_t block = first / step * step; block < last; block += step) {
    if (!classify(block, std::min(block + step, end_))) continue;
    fetch(find_gaps());
    for (int p = 0; p < count; ++p) {
      const Part& part = parts_[static_cast<std::size_t>(p)];
      if (part.skip) continue;
      compute_scores(p);
      visit(p, part.first, part.keys);
    }
  }
}

// Says of every panel what it sees of a block; false if none sees anything.
template <class T>
bool BlockLoop<T>::classify(std::int64_t first, std::int64_t last) {
  block_first_ = last;
  block_last_ = first;
  for (int p = 0; p < static_cast<int>(panels_.size()); ++p) {
    Part& part = parts_[static_cast<std::size_t>(p)];
    part = classify_panel(p, first, last);
    if (part.skip) continue;
    block_first_ = std::min(block_first_, part.first);
    block_last_ = std::max(block_last_, part.first + part.keys);
  }
  return block_first_ < block_last_;
}

template <class T>
typename BlockLoop<T>::Part BlockLoop<T>::classify_panel(int p, std::int64_t block_first, std::int64_t block_last) {
  const PanelState& state = states_[static_cast<std::size_t>(p)];
  const std::int64_t from = std::max(block_first, state.min_first), to = std::min(block_last, state.max_last);
  Part part{true, from, static_cast<int>(std::max<std::int64_t>(to - from, 0)), false, {}, nullptr, nullptr};
  if (from >= to) return part;
  part.skip = false;
  part.limited = state.empty_rows || state.max_first > from || state.min_last < to;
  if (!problem_.mask.has_pairs() || until_ != Until::masked) return part;

  const std::int64_t index = p * w_.blocks + (strategy_.share_pairs ? block_first / strategy_.block_keys : 0);
  T* added = w_.added + index * w_.block * strategy_.max_lanes;
  T* seen = w_.seen + index * w_.block;
  PairTable& table = w_.tables[index];
  if (!strategy_.share_pairs || table.state == PairState::unknown) {
    table = fill_pairs<T>(problem_, {panels_[static_cast<std::size_t>(p)], group_.batch, head(), first(p), last(p)},
                          from, part.keys, {*strategy_.panel, w_.pair_rows, w_.block, w_.kept, unit_}, added, seen);
  }
  part.table = table;
  part.added = added;
  part.seen = seen;
  part.skip = table.state == PairState::none;
  part.limited = false;  // the table has the ranges in it
  return part;
}

// Whether keys of the block in hand are excluded for all rows of the group; if so, visible[j] says which are not.
template <class T>
bool BlockLoop<T>::find_gaps() {
  bool possible = false;
  std::int64_t reached = block_first_;
  for (int p = 0; p < static_cast<int>(panels_.size()); ++p) {
    const Part& part = parts_[static_cast<std::size_t>(p)];
    if (part.skip) continue;
    possible |= part.table.gaps || (part.limited && states_[static_cast<std::size_t>(p)].gaps) || part.first > reached;
    reached = std::max(reached, part.first + part.keys);
  }
  if (!possible) return false;
  const auto keys = static_cast<std::size_t>(block_last_ - block_first_);
  std::fill_n(w_.visible, keys + 1, 0);
  const auto mark = [&](std::int64_t first, std::int64_t last) {
    ++w_.visible[first - block_first_];
    --w_.visible[last - block_first_];
  };
  for (int p = 0; p < static_cast<int>(panels_.size()); ++p) {
    const Part& part = parts_[static_cast<std::size_t>(p)];
    if (part.skip) continue;
    const std::int64_t part_last = part.first + part.keys;
    if (part.table.state == PairState::mixed) {
      for (int j = 0; j < part.keys; ++j) {
        if (part.seen[j] == T(0)) mark(part.first + j, part.first + j + 1);
      }
    } else if (part.limited) {
      for (int r = 0; r < panels_[static_cast<std::size_t>(p)].rows(); ++r) {
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

// Finds the block's keys and values, or copies them.
template <class T>
void BlockLoop<T>::fetch(bool gaps) {
  const auto direct = [&](const View& rows) {
    const std::int64_t at =
        group_.batch * rows.stride(0) + head() / problem_.group * rows.stride(1) + block_first_ * rows.stride(2);
    return Rows{static_cast<const std::byte*>(rows.data()) + at * static_cast<std::int64_t>(size_of(rows.dtype())),
                rows.stride(2), false};
  };
  if (strategy_.keys_direct && !gaps) {
    keys_ = direct(problem_.k);
  } else {
    const std::int64_t D = problem_.D;
    stage(problem_.k, gaps, [&](std::int64_t row, std::int64_t count, const T* rows, std::ptrdiff_t stride) {
      for (std::int64_t r = 0; r < count; ++r) std::copy_n(rows + r * stride, D, w_.keys + (row + r) * D);
    });
    keys_ = {w_.keys, D, true};
  }
  // Where pairs are excluded, the values may have to be looked at as T.
  bool excludes = false;
  for (std::size_t p = 0; p < panels_.size(); ++p) excludes |= !parts_[p].skip && parts_[p].excludes();
  const std::int64_t Dv = problem_.Dv, width = strategy_.value_width(problem_);
  finite_ = Finite::unknown;
  const bool direct_values = strategy_.decode ? !(excludes && problem_.v.dtype() != dtype_of<T>)
                                              : (block_last_ - block_first_) * Dv <= few_values;
  if (strategy_.values_direct && direct_values && !gaps) {
    values_ = direct(problem_.v);
  } else if (strategy_.decode) {
    stage(problem_.v, gaps, [&](std::int64_t row, std::int64_t count, const T* rows, std::ptrdiff_t stride) {
      for (std::int64_t r = 0; r < count; ++r) std::copy_n(rows + r * stride, Dv, w_.values + (row + r) * width);
    });
    values_ = {w_.values, width, true};
  } else {
    const auto& kernels = *strategy_.panel;
    bool finite = true;
    stage(problem_.v, gaps, [&](std::int64_t row, std::int64_t count, const T* rows, std::ptrdiff_t stride) {
      finite &= kernels.spread({rows, stride, static_cast<int>(count), static_cast<int>(Dv),
                                w_.values + row * kernels.strip, w_.strip_stride});
    });
    values_ = {w_.values, kernels.strip, true};
    finite_ = finite ? Finite::yes : Finite::no;
  }
}

// Hands over the block's rows as T: all at once where they can be taken as they lie, else one by one, with zeros for
// those that must not be read.
template <class T>
void BlockLoop<T>::stage(const View& view, bool gaps,
                         FunctionRef<void(std::int64_t, std::int64_t, const T*, std::ptrdiff_t)> keep) const {
  const std::int64_t width = view.extent(3), stride = view.stride(2);
  const std::int64_t base = group_.batch * view.stride(0) + head() / problem_.group * view.stride(1);
  if (view.dtype() == dtype_of<T> && view.stride(3) == 1 && !gaps) {
    return keep(0, block_last_ - block_first_, view.as<T>() + base + block_first_ * stride, stride);
  }
  for (std::int64_t key = block_first_; key < block_last_; ++key) {
    if (gaps && w_.visible[key - block_first_] == 0) {
      std::fill_n(w_.row, width, T(0));
    } else {
      load_row(view, base + key * stride, view.stride(3), width, w_.row);
    }
    keep(key - block_first_, 1, w_.row, 0);
  }
}

// First and second station: the block's scores, edited, in w_.scores; their row maxima in w_.row_max.
template <class T>
void BlockLoop<T>::compute_scores(int p) {
  const Panel& panel = panels_[static_cast<std::size_t>(p)];
  const Part& part = parts_[static_cast<std::size_t>(p)];
  const std::size_t size = keys_.staged ? sizeof(T) : size_of(problem_.k.dtype());
  kernels::ScoreArgs<T> args{queries(p),
                             static_cast<const std::byte*>(keys_.data) +
                                 (part.first - block_first_) * keys_.stride * static_cast<std::int64_t>(size),
                             keys_.stride,
                             static_cast<int>(problem_.D),
                             panel.lanes,
                             0,
                             part.keys,
                             w_.scores,
                             nullptr};
  const auto score = [&](int first, int last, T* row_max) {
    args.first = first;
    args.last = last;
    args.row_max = row_max;
    (keys_.staged ? strategy_.score_staged : strategy_.score)(args);
  };
  T* row_max = strategy_.decode ? nullptr : w_.row_max;  // decode finds the maxima while it weighs
  std::fill_n(w_.row_max, panel.lanes, minus_infinity<T>);

  const ResolvedMask& mask = problem_.mask;
  const bool edited =
      until_ != Until::masked || problem_.softcap != 0 || !mask.edit_by().empty() || !mask.slopes().empty();
  const bool looked_up = part.table.state == PairState::mixed;
  if (looked_up && !edited && !strategy_.decode) {
    args.added = part.added;
    return score(0, part.keys, row_max);
  }
  if (edited || looked_up) {
    score(0, part.keys, nullptr);
    return edit_scores(p, 0, part.keys, true);
  }
  if (!part.limited) return score(0, part.keys, row_max);
  // Only the keys that not every row sees are edited.
  const PanelState& state = states_[static_cast<std::size_t>(p)];
  int full_first = 0, full_last = 0;
  if (!state.empty_rows && !strategy_.decode) {
    full_first = static_cast<int>(std::clamp<std::int64_t>(state.max_first - part.first, 0, part.keys));
    full_last = static_cast<int>(std::clamp<std::int64_t>(state.min_last - part.first, full_first, part.keys));
    // What is left over of a tile goes to the edited keys, which then need no tile of their own for it.
    const int tile = strategy_.panel->tile_keys;
    full_first = std::min((full_first + tile - 1) / tile * tile, full_last);
    if (full_last < part.keys) full_last -= (full_last - full_first) % tile;
  }
  if (full_first == full_last) full_first = full_last = part.keys;
  if (full_first > 0) {
    score(0, full_first, nullptr);
    edit_scores(p, 0, full_first, false);
  }
  if (full_first < full_last) score(full_first, full_last, row_max);
  if (full_last < part.keys) {
    score(full_last, part.keys, nullptr);
    edit_scores(p, full_last, part.keys, false);
  }
}

// All edits, in the order of SEMANTICS.md S2, or only the ranges. The last one finds the row maxima.
template <class T>
void BlockLoop<T>::edit_scores(int p, int first, int last, bool everything) {
  const Part& part = parts_[static_cast<std::size_t>(p)];
  const ResolvedMask& mask = problem_.mask;
  const auto& edits = *strategy_.edits;
  set_row_parameters(p, part.first);
  kernels::EditArgs<T> args{w_.scores,
                            panels_[static_cast<std::size_t>(p)].lanes,
                            first,
                            last,
                            nullptr,
                            part.added,
                            w_.slopes,
                            w_.positions,
                            w_.begins,
                            w_.ends,
                            static_cast<T>(problem_.softcap) * unit_};
  struct Step {
    bool wanted;
    void (*edit)(const kernels::EditArgs<T>&);  // null: the functions given to edit_by
  };
  const bool masked = until_ == Until::masked;
  const Step steps[] = {{everything && problem_.softcap != 0 && until_ != Until::scaled, edits.softcap},
                        {everything && masked && !mask.edit_by().empty(), nullptr},
                        {everything && masked && !mask.slopes().empty(), edits.alibi},
                        {everything && masked && part.table.state == PairState::mixed, edits.add},
                        {masked && part.limited, edits.limit}};
  int final_step = -1;
  for (int i = 0; i < 5; ++i) {
    if (steps[i].wanted) final_step = i;
  }
  for (int i = 0; i <= final_step; ++i) {
    if (!steps[i].wanted) continue;
    args.row_max = i == final_step && !strategy_.decode ? w_.row_max : nullptr;
    if (steps[i].edit != nullptr) {
      steps[i].edit(args);
      continue;
    }
    for (const mask_part::EditBy& edit : mask.edit_by()) call_edit(edit, p, first, last);
    if (args.row_max != nullptr) edits.maximum(args);
  }
}

// Users see scores as they are meant, not in our unit. A finite score stays finite.
template <class T>
void BlockLoop<T>::call_edit(const mask_part::EditBy& edit, int p, int first, int last) const {
  const Panel& panel = panels_[static_cast<std::size_t>(p)];
  const std::span<T> scores(w_.scores + first * panel.lanes, static_cast<std::size_t>((last - first) * panel.lanes));
  for (T& score : scores) score /= unit_;
  for (int h = 0; h < panel.heads; ++h) {
    const ScoreBlock<T> block{w_.scores + first * panel.lanes + h * panel.queries,
                              panel.lanes,
                              panel.queries,
                              last - first,
                              group_.batch,
                              head() + panel.first_head + h,
                              panel.first_query,
                              parts_[static_cast<std::size_t>(p)].first + first};
    if constexpr (std::is_same_v<T, float>) {
      edit.call_float(edit.function, block);
    } else {
      edit.call_double(edit.function, block);
    }
  }
  constexpr T largest = std::numeric_limits<T>::max();
  for (T& score : scores) {
    const T scaled = score * unit_;
    score = std::abs(score) <= largest ? std::clamp(scaled, -largest, largest) : scaled;
  }
}

// What edits and pooling need to know of each row, counted from the part's first key; repeated to fill a vector.
template <class T>
void BlockLoop<T>::set_row_parameters(int p, std::int64_t from) {
  const Panel& panel = panels_[static_cast<std::size_t>(p)];
  const Part& part = parts_[static_cast<std::size_t>(p)];
  const int lanes = panel.lanes, rows = panel.rows();
  if (part.limited) {
    const auto within = [&](std::int64_t key) {
      return static_cast<T>(std::clamp<std::int64_t>(key - from, 0, part.keys));
    };
    for (int r = 0; r < lanes; ++r) {
      w_.begins[r] = r < rows ? within(first(p)[r]) : T(0);
      w_.ends[r] = r < rows ? within(last(p)[r]) : static_cast<T>(part.keys);
    }
  }
  const auto slopes = problem_.mask.slopes();
  if (!slopes.empty()) {
    const std::int64_t position = problem_.mask.position(group_.batch, panel.first_query) - from;
    for (int h = 0, r = 0; h < panel.heads; ++h) {
      const T slope = static_cast<T>(slopes[static_cast<std::size_t>(head() + panel.first_head + h)]) * unit_;
      for (int i = 0; i < panel.queries; ++i, ++r) {
        w_.slopes[r] = slope;
        w_.positions[r] = static_cast<T>(position + i);
      }
    }
    std::fill(w_.slopes + rows, w_.slopes + lanes, T(0));
    std::fill(w_.positions + rows, w_.positions + lanes, T(0));
  }
  for (T* per_row : {w_.begins, w_.ends, w_.slopes, w_.positions}) {
    for (int lane = lanes; lane < strategy_.vector; ++lane) per_row[lane] = per_row[lane - lanes];
  }
}

// Third and fourth station.
template <class T>
void BlockLoop<T>::pool_block(int p, const MutableView& out) {
  const Panel& panel = panels_[static_cast<std::size_t>(p)];
  const Part& part = parts_[static_cast<std::size_t>(p)];
  PanelState& state = states_[static_cast<std::size_t>(p)];
  const bool select = part.excludes() && !values_finite();
  if (select) mark_excluded(p);  // in the weights a pair's 0 may also be a small weight
  strategy_.weigh({w_.scores, panel.lanes, part.keys, w_.row_max, max(p), sum(p), w_.rescale});
  const std::size_t size = values_.staged ? sizeof(T) : size_of(problem_.v.dtype());
  kernels::PoolArgs<T> args{w_.scores,
                            panel.lanes,
                            panel.rows(),
                            static_cast<const std::byte*>(values_.data) +
                                (part.first - block_first_) * values_.stride * static_cast<std::int64_t>(size),
                            values_.stride,
                            values_.staged ? w_.strip_stride : strategy_.panel->strip,
                            static_cast<int>(strategy_.decode ? problem_.Dv : strategy_.value_width(problem_)),
                            part.keys,
                            sums(p),
                            strategy_.value_width(problem_),
                            state.started ? w_.rescale : nullptr,
                            nullptr,
                            nullptr,
                            w_.factors,
                            sums(p),
                            strategy_.value_width(problem_)};
  state.started = true;
  std::fill_n(w_.factors, panel.lanes, T(1));
  if (select) return pool_selected(p, args);
  if (part.limited && !strategy_.decode) {
    args.begins = w_.begins;
    args.ends = w_.ends;
  }
  state.finished = finish_with(args, p, out);
  (values_.staged ? strategy_.pool_staged : strategy_.pool)(args);
}

// The panel's last block may write its outputs itself, where every row has seen something and rows of T in whole
// vectors are wanted.
template <class T>
bool BlockLoop<T>::finish_with(kernels::PoolArgs<T>& args, int p, const MutableView& out) const {
  const Part& part = parts_[static_cast<std::size_t>(p)];
  const Panel& panel = panels_[static_cast<std::size_t>(p)];
  const bool last = part.first + part.keys == states_[static_cast<std::size_t>(p)].max_last;
  if (strategy_.decode || !last || !out || out.dtype() != dtype_of<T> || out.stride(3) != 1 ||
      problem_.Dv % strategy_.vector != 0) {
    return false;
  }
  for (int r = 0; r < panel.queries; ++r) {
    if (max(p)[r] == minus_infinity<T>) return false;
  }
  for (int r = 0; r < panel.queries; ++r) w_.factors[r] = T(1) / sum(p)[r];
  args.out = out.as<T>() + group_.batch * out.stride(0) + head() * out.stride(1) + panel.first_query * out.stride(2);
  args.out_stride = out.stride(2);
  return true;
}

template <class T>
bool BlockLoop<T>::mark_excluded(int p) {
  const Part& part = parts_[static_cast<std::size_t>(p)];
  if (!part.excludes()) return false;
  const int lanes = panels_[static_cast<std::size_t>(p)].lanes;
  std::fill_n(w_.shadow, w_.block * lanes, T(0));
  set_row_parameters(p, part.first);
  const kernels::EditArgs<T> args{w_.shadow, lanes,   0,         part.keys, nullptr, part.added,
                                  nullptr,   nullptr, w_.begins, w_.ends,   T(0)};
  if (part.table.state == PairState::mixed) strategy_.edits->add(args);
  if (part.limited) strategy_.edits->limit(args);
  return true;
}

// A block in which somebody's excluded value is NaN or infinite, and 0 times it would be NaN: row by row, with the
// weights and values of the keys that the row sees, and no others.
template <class T>
void BlockLoop<T>::pool_selected(int p, kernels::PoolArgs<T> args) {
  const Panel& panel = panels_[static_cast<std::size_t>(p)];
  const kernels::PoolArgs<T> block = args;
  const T* values = static_cast<const T*>(block.values);
  // Decode has whole rows; the panel kernel has strips, of which a row may hold fewer.
  const std::int64_t width = strategy_.decode ? problem_.Dv : strategy_.panel->strip;
  const std::int64_t strips = strategy_.decode ? 1 : divide_up(args.width, width);
  args.weights = w_.selected_weights;
  args.values = w_.selected_values;
  args.value_stride = width;
  args.strip_stride = w_.block * width;
  args.lanes = args.rows = 1;
  for (int r = 0; r < panel.rows(); ++r) {
    args.keys = 0;
    for (int j = 0; j < block.keys; ++j) {
      if (w_.shadow[j * panel.lanes + r] == minus_infinity<T>) continue;
      w_.selected_weights[args.keys] = block.weights[j * panel.lanes + r];
      for (std::int64_t strip = 0; strip < strips; ++strip) {
        std::copy_n(values + j * block.value_stride + strip * block.strip_stride, width,
                    w_.selected_values + args.keys * width + strip * args.strip_stride);
      }
      ++args.keys;
    }
    args.sums = args.out = block.sums + r * block.sum_stride;
    args.rescale = block.rescale == nullptr ? nullptr : block.rescale + r;
    strategy_.pool_staged(args);
  }
}

// Of the block in hand. The panel kernel has found out while copying them.
template <class T>
bool BlockLoop<T>::values_finite() {
  if (finite_ != Finite::unknown) return finite_ == Finite::yes;
  finite_ = Finite::yes;
  const auto* values = static_cast<const T*>(values_.data);
  for (std::int64_t j = 0; j < block_last_ - block_first_; ++j) {
    if (!strategy_.rows->finite(values + j * values_.stride, problem_.Dv)) finite_ = Finite::no;
  }
  return finite_ == Finite::yes;
}

template class BlockLoop<float>;
template class BlockLoop<double>;

}  // namespace qkv
