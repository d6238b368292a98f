// attention/block_scores.cpp: the first and second station of the loop: a block's scores, and what is done to them.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <span>

#include "attention/block_loop.h"
#include "attention/functors.h"
#include "base/numbers.h"
#include "kernels/processor.h"

namespace qkv {

kernels::DistanceKernel distance_kernel(Score::Kind kind) {
  switch (kind) {
    case Score::Kind::laplace:
      return kernels::DistanceKernel::laplace;
    case Score::Kind::boxcar:
      return kernels::DistanceKernel::boxcar;
    case Score::Kind::triangular:
      return kernels::DistanceKernel::triangular;
    case Score::Kind::epanechnikov:
      return kernels::DistanceKernel::epanechnikov;
    default:
      return kernels::DistanceKernel::gaussian;
  }
}

// What scores need besides queries and keys. Heads that differ in it are not in one panel.
template <class T>
void BlockLoop<T>::set_score_parameters() {
  const ScoreParameters& parameters = *strategy_.scoring->parameters;
  if (parameters.hidden) {
    const View hidden = of_head(parameters.hidden, head());
    double sum = 0;
    for (std::int64_t e = 0; e < hidden.extent(0); ++e) {
      w_.hidden[e] = hidden.as<T>()[e] * unit_;
      sum += static_cast<double>(w_.hidden[e]);
    }
    hidden_sum_ = static_cast<T>(sum);
  }
  if (way_->score->kind == ScoreWay::Kind::distance) {
    const View squares = of_head(parameters.inverse_squares, head());
    per_coordinate_ = parameters.by_coordinate ? squares.as<T>() : nullptr;
    std::fill_n(w_.per_row_scale, strategy_.max_lanes, parameters.by_coordinate ? T(1) : *squares.as<T>());
  }
}

// The scores of keys first <= j < last of the panel's part, before any edit.
template <class T>
void BlockLoop<T>::score(int p, int first, int last, T* row_max, bool with_pairs, Lanes some) {
  const int lanes = group_.panel(p).lanes;
  if (way_ == nullptr) {
    std::fill(scores_ + first * lanes, scores_ + last * lanes, T(0));
    if (row_max != nullptr) std::fill_n(row_max, lanes, T(0));
    return;
  }
  const auto& keys = records_.keys();
  kernels::ScoreArgs<T> args{queries(p),  keys.row(sight_.part(p).first - sight_.block().first),
                             keys.stride, static_cast<int>(way_->score->width),
                             lanes,       first,
                             last,        scores_,
                             row_max};
  if (some.last > 0) {
    args.queries += some.first;
    args.scores += some.first;
    args.lanes = some.last - some.first;
    args.panel_lanes = lanes;
  }
  if (ahead_.lines > 0) args.ahead = &ahead_;
  if (strategy_.decode) args.reading = kernels::best_reading(way_->score->width * keys.size);
  if (with_pairs) {
    const Part& part = sight_.part(p);
    if (part.table.bits) {
      args.excluded = part.pairs.excluded;
    } else {
      args.added = part.pairs.added;
      args.added_is_finite = !part.table.excludes;
      args.added_is_far = strategy_.far_tables;
    }
  }
  const auto kernel = keys.staged ? way_->staged : way_->kernel;
  if (kernel == nullptr) {
    call_score(p, first, last);
    if (row_max != nullptr) strategy_.edits->maximum({scores_, lanes, first, last, row_max});
    return;
  }
  args.hidden = w_.hidden;
  args.offset = hidden_sum_;
  args.kernel = distance_kernel(problem_.score.kind);
  args.per_row = w_.per_row_scale;
  args.per_coordinate = per_coordinate_;
  args.unit = problem_.weighing.kernel_values && !to_be_seen_ ? T(0) : unit_;
  if (!way_->by_rows) return kernel(args);
  const int rows = group_.panel(p).rows();
  args.lanes = static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows)));
  args.scores = w_.row_scores;
  args.row_max = nullptr;
  kernel(args);
  for (int j = first; j < last; ++j) {
    std::fill(std::copy_n(w_.row_scores + j * args.lanes, rows, scores_ + j * lanes), scores_ + (j + 1) * lanes, T(0));
  }
  if (row_max != nullptr) strategy_.edits->maximum({scores_, lanes, first, last, row_max});
}

// u^2 of every pair of the panel's part, where the way goes by distances: what a gaussian's score is -1/2 of.
template <class T>
void BlockLoop<T>::squared_distances(int p) {
  const auto& keys = records_.keys();
  const Part& part = sight_.part(p);
  kernels::ScoreArgs<T> args{queries(p),
                             keys.row(part.first - sight_.block().first),
                             keys.stride,
                             static_cast<int>(way_->score->width),
                             group_.panel(p).lanes,
                             0,
                             part.keys,
                             scores_,
                             nullptr};
  args.kernel = kernels::DistanceKernel::gaussian;
  args.per_row = w_.per_row_scale;
  args.per_coordinate = per_coordinate_;
  args.unit = -2;
  (keys.staged ? way_->staged : way_->kernel)(args);
}

// First and second station: the block's scores, edited; their row maxima in w_.row_max.
template <class T>
void BlockLoop<T>::compute_scores(int p) {
  const Panel& panel = group_.panel(p);
  const Part& part = sight_.part(p);
  T* row_max = strategy_.decode || linear() ? nullptr : w_.row_max;  // decode finds the maxima while it weighs
  std::fill_n(w_.row_max, panel.lanes, -infinity<T>);

  const bool edited = until_ != Until::masked || (problem_.edits_scores() && !exclusion_only());
  const bool looked_up = part.table.state == PairState::mixed;
  const bool by_panel_dot = way_ != nullptr && way_->score->kind == ScoreWay::Kind::dot && !strategy_.decode;
  if (looked_up && !edited && by_panel_dot && !linear()) return score(p, 0, part.keys, row_max, true);
  if (edited || looked_up || part.limited) set_row_parameters(p);
  if (edited || looked_up) {
    score(p, 0, part.keys, nullptr);
    return edit_scores(p, 0, part.keys, true);
  }
  if (!part.limited) return score(p, 0, part.keys, row_max);
  // Only the keys that not every row sees are edited.
  const Whole whole = seen_by_all(p);
  if (whole.first < whole.last) score(p, whole.first, whole.last, row_max);
  const bool by_vector = by_panel_dot && strategy_.panel->max_vectors > 2 && panel.lanes > strategy_.vector;
  for (const auto& [first, last] : {Whole{0, whole.first}, Whole{whole.last, part.keys}}) {
    if (first == last) continue;
    by_vector ? score_edge(p, first, last) : score(p, first, last, nullptr);
    edit_scores(p, first, last, false);
  }
}

// Scores keys that not every row of a wide panel sees: by tiles, and only for the vectors of rows between the first and
// the last that sees something of the tile.
template <class T>
void BlockLoop<T>::score_edge(int p, int first, int last) {
  const Panel& panel = group_.panel(p);
  const int vector = strategy_.vector, tile = strategy_.panel->tile_keys;
  constexpr int most = 4;  // vectors
  assert(panel.lanes <= most * vector && "a panel has at most four vectors of queries");
  std::int64_t begins[most], ends[most];
  for (int lane = 0, v = 0; lane < panel.lanes; lane += vector, ++v) {
    const int rows = std::max(std::min(vector, panel.rows() - lane), 0);
    const std::span<const std::int64_t> first_keys(sight_.first(p) + lane, static_cast<std::size_t>(rows));
    const std::span<const std::int64_t> last_keys(sight_.last(p) + lane, static_cast<std::size_t>(rows));
    if (rows == 0) {
      begins[v] = ends[v] = 0;
    } else if (sight_.ranges(p).rising) {
      begins[v] = first_keys.front();
      ends[v] = last_keys.back();
    } else {
      begins[v] = std::ranges::min(first_keys);
      ends[v] = std::ranges::max(last_keys);
    }
  }
  const auto lanes_of_tile = [&](int j) {
    const std::int64_t from = sight_.part(p).first + j, to = std::min(from + tile, sight_.part(p).first + last);
    Lanes lanes{panel.lanes, 0};
    for (int lane = 0, v = 0; lane < panel.lanes; lane += vector, ++v) {
      if (begins[v] < to && ends[v] > from) lanes = {std::min(lanes.first, lane), lane + vector};
    }
    return lanes;
  };
  Lanes lanes = lanes_of_tile(first);
  for (int j = first; j < last;) {
    Lanes next = lanes;
    int end = j;
    do {
      end += tile;
    } while (end < last && (next = lanes_of_tile(end)) == lanes);
    if (lanes.first < lanes.last) score(p, j, std::min(end, last), nullptr, false, lanes);
    lanes = next;
    j = end;
  }
}

template <class T>
typename BlockLoop<T>::Whole BlockLoop<T>::seen_by_all(int p) const {
  const Part& part = sight_.part(p);
  const auto& ranges = sight_.ranges(p);
  Whole whole{part.keys, part.keys};
  if (ranges.empty_rows || strategy_.decode) return whole;
  const int first = static_cast<int>(std::clamp<std::int64_t>(ranges.max_first - part.first, 0, part.keys));
  const int last = static_cast<int>(std::clamp<std::int64_t>(ranges.min_last - part.first, first, part.keys));
  // What is left over of a tile goes to the others, which then need no tile of their own for it.
  const int tile = strategy_.panel->tile_keys;
  whole = {std::min((first + tile - 1) / tile * tile, last), last};
  if (last < part.keys) whole.last -= (whole.last - whole.first) % tile;
  return whole.first == whole.last ? Whole{part.keys, part.keys} : whole;
}

// All edits, in the order of SEMANTICS.md S2, or only the ranges; rows' parameters are set. The last one finds the row
// maxima.
template <class T>
void BlockLoop<T>::edit_scores(int p, int first, int last, bool everything) {
  const Part& part = sight_.part(p);
  const ResolvedMask& mask = problem_.mask;
  const auto& edits = *strategy_.edits;
  kernels::EditArgs<T> args{scores_,
                            group_.panel(p).lanes,
                            first,
                            last,
                            nullptr,
                            part.pairs.added,
                            w_.slopes,
                            w_.positions,
                            w_.begins,
                            w_.ends,
                            static_cast<T>(problem_.softcap) * unit_,
                            linear() ? T(0) : -infinity<T>};
  struct Step {
    bool wanted;
    void (*edit)(const kernels::EditArgs<T>&);  // null: the functions given to edit_by
  };
  const bool masked = until_ == Until::masked, changed = everything && !exclusion_only();
  const Step steps[] = {{changed && problem_.softcap != 0 && until_ != Until::scaled, edits.softcap},
                        {changed && masked && !mask.edit_by().empty(), nullptr},
                        {changed && masked && !mask.slopes().empty(), edits.alibi},
                        {everything && masked && part.table.state == PairState::mixed, edits.add},
                        {masked && part.limited, edits.limit}};
  int final_step = -1;
  for (int i = 0; i < 5; ++i) {
    if (steps[i].wanted) final_step = i;
  }
  for (int i = 0; i <= final_step; ++i) {
    if (!steps[i].wanted) continue;
    args.row_max = i == final_step && !strategy_.decode && !linear() ? w_.row_max : nullptr;
    if (steps[i].edit != nullptr) {
      steps[i].edit(args);
      continue;
    }
    call_edits(p, first, last);
    if (args.row_max != nullptr) edits.maximum(args);
  }
}

// Users see scores as they are meant, not in our unit. A finite score stays finite.
template <class T>
void BlockLoop<T>::call_edits(int p, int first, int last) const {
  for (T& score : scores_of(p, first, last)) score /= unit_;
  for (const mask_part::EditBy& edit : problem_.mask.edit_by()) {
    for (int h = 0; h < group_.panel(p).heads; ++h) {
      call(edit, block_of_head(p, h, first, last));
    }
  }
  to_unit(scores_of(p, first, last));
}

template <class T>
void BlockLoop<T>::call_score(int p, int first, int last) const {
  const Panel& panel = group_.panel(p);
  const std::int64_t width = way_->score->width, stride = strategy_.query_width(*way_->score);
  const auto& keys = records_.keys();
  const auto* rows = reinterpret_cast<const T*>(keys.row(sight_.part(p).first - sight_.block().first + first));
  std::ranges::fill(scores_of(p, first, last), T(0));  // lanes beyond the panel's rows are read too
  for (int h = 0; h < panel.heads; ++h) {
    const ScoreTile<T> tile{
        block_of_head(p, h, first, last), queries(p) + h * panel.queries * stride, rows, stride, keys.stride, width};
    call(problem_.score, tile);
  }
  to_unit(scores_of(p, first, last));
}

template <class T>
std::span<T> BlockLoop<T>::scores_of(int p, int first, int last) const {
  const int lanes = group_.panel(p).lanes;
  return {scores_ + first * lanes, static_cast<std::size_t>((last - first) * lanes)};
}

template <class T>
ScoreBlock<T> BlockLoop<T>::block_of_head(int p, int h, int first, int last) const {
  const Panel& panel = group_.panel(p);
  return {scores_of(p, first, last).data() + h * panel.queries,
          panel.lanes,
          panel.queries,
          last - first,
          group_.batch,
          head() + panel.first_head + h,
          panel.first_query,
          sight_.part(p).first + first};
}

template <class T>
void BlockLoop<T>::to_unit(std::span<T> scores) const {
  constexpr T largest = std::numeric_limits<T>::max();
  for (T& score : scores) {
    const T scaled = score * unit_;
    score = std::abs(score) <= largest ? std::clamp(scaled, -largest, largest) : scaled;
  }
}

// What edits and pooling need to know of each row, counted from the part's first key; repeated to fill a vector.
template <class T>
void BlockLoop<T>::set_row_parameters(int p) {
  const Panel& panel = group_.panel(p);
  const Part& part = sight_.part(p);
  const int lanes = panel.lanes, rows = panel.rows();
  if (part.limited) {
    const auto within = [&](std::int64_t key) {
      return static_cast<T>(std::clamp<std::int64_t>(key - part.first, 0, part.keys));
    };
    for (int r = 0; r < lanes; ++r) {
      w_.begins[r] = r < rows ? within(sight_.first(p)[r]) : T(0);
      w_.ends[r] = r < rows ? within(sight_.last(p)[r]) : static_cast<T>(part.keys);
    }
  }
  const auto slopes = problem_.mask.slopes();
  if (!slopes.empty()) {
    const std::int64_t position = problem_.mask.position(group_.batch, panel.first_query) - part.first;
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

template void BlockLoop<float>::set_score_parameters();
template void BlockLoop<double>::set_score_parameters();
template ScoreBlock<float> BlockLoop<float>::block_of_head(int, int, int, int) const;
template ScoreBlock<double> BlockLoop<double>::block_of_head(int, int, int, int) const;
template void BlockLoop<float>::squared_distances(int);
template void BlockLoop<double>::squared_distances(int);
template void BlockLoop<float>::score(int, int, int, float*, bool, Lanes);
template void BlockLoop<double>::score(int, int, int, double*, bool, Lanes);
template typename BlockLoop<float>::Whole BlockLoop<float>::seen_by_all(int) const;
template typename BlockLoop<double>::Whole BlockLoop<double>::seen_by_all(int) const;
template void BlockLoop<float>::compute_scores(int);
template void BlockLoop<double>::compute_scores(int);
template void BlockLoop<float>::set_row_parameters(int);
template void BlockLoop<double>::set_row_parameters(int);

}  // namespace qkv
