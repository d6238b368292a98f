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

}  // namespace

template <class T>
BlockLoop<T>::BlockLoop(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace, bool tables_valid)
    : problem_(problem),
      strategy_(strategy),
      w_(workspace),
      tables_valid_(tables_valid),
      sight_(problem, strategy, workspace),
      records_(problem, strategy, workspace),
      selection_(problem, strategy, workspace),
      scores_(workspace.scores) {}

template <class T>
void BlockLoop<T>::begin(const GroupOf& group, KeyRange keys, Until until, bool to_be_seen) {
  const Weighing& weighing = problem_.weighing;
  until_ = until;
  to_be_seen_ = to_be_seen;
  unit_ = to_be_seen ? T(1) : static_cast<T>(weighing.unit);
  end_ = keys.last;
  scores_ = w_.scores;
  const auto from = static_cast<std::size_t>(group.group * strategy_.group_panels);
  const auto panels = std::span(strategy_.panels).subspan(from);
  group_ = {group.batch, group.unit * strategy_.unit_heads,
            panels.first(std::min(panels.size(), static_cast<std::size_t>(strategy_.group_panels)))};
  way_ = nullptr;
  if (to_be_seen || !weighing.exclusion_only) {
    const ScoreWay& way = strategy_.scoring->way(group.batch, group_.head, problem_.H);
    way_ = &way == strategy_.exact.score ? &strategy_.exact : &strategy_.usual;
    set_score_parameters();
  }
  for (int p = 0; p < group_.count(); ++p) {
    if (way_ != nullptr) pack_queries(p);
    progress_[static_cast<std::size_t>(p)] = Progress::none;
    std::fill_n(max(p), strategy_.max_lanes, weighing.family == Family::linear ? T(0) : minus_infinity<T>);
    std::fill_n(sum(p), strategy_.max_lanes, T(0));
    if (entropy(p) != nullptr) std::fill_n(entropy(p), strategy_.max_lanes, T(0));
  }
  if (weighing.kept > 0 && !to_be_seen) selection_.begin(group_.count());
  const bool exclusion_only = weighing.exclusion_only && !to_be_seen;
  sight_.begin(group_, keys, until == Until::masked, exclusion_only ? T(0) : unit_, tables_valid_);
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

template <class T>
void BlockLoop<T>::pack_queries(int p) {
  const Panel& panel = group_.panel(p);
  const ScoreWay& way = *way_->score;
  const View& q = way.q;
  const std::int64_t D = way.width;
  const T scale = way.kind == ScoreWay::Kind::dot ? static_cast<T>(way.scale * static_cast<double>(unit_)) : T(1);
  const auto offset = [&](int r) {
    const std::int64_t h = head() + panel.first_head + r / panel.queries, i = panel.first_query + r % panel.queries;
    return group_.batch * q.stride(0) + h * q.stride(1) + i * q.stride(2);
  };
  if (strategy_.decode || way.kind == ScoreWay::Kind::yours) {
    const std::int64_t width = strategy_.query_width(way);
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
void BlockLoop<T>::pool_all(const MutableView& out, Mass<T>* mass) {
  for_each_block([&](int p, std::int64_t block) {
    if (mass != nullptr) scores_ = mass->block(p, block);
    compute_scores(p);
    pool_block(p, out);
    if (mass != nullptr) mass->keep(p, block, sight_.part(p).first, sight_.part(p).keys, group_.panel(p).lanes, max(p));
  });
}

template <class T>
void BlockLoop<T>::visit_scores(FunctionRef<void(int, std::int64_t, int)> visit) {
  for_each_block([&](int p, std::int64_t) {
    compute_scores(p);
    visit(p, sight_.part(p).first, sight_.part(p).keys);
  });
}

template <class T>
void BlockLoop<T>::for_each_block(FunctionRef<void(int, std::int64_t)> work) {
  const KeyRange all = sight_.all();
  const std::int64_t step = strategy_.block_keys;
  for (std::int64_t block = all.first / step * step; block < all.last; block += step) {
    if (!sight_.look_at(block, std::min(block + step, end_))) continue;
    records_.fetch(group_, sight_, way_);
    for (int p = 0; p < group_.count(); ++p) {
      if (!sight_.part(p).skip) work(p, block);
    }
  }
}

// The scores of keys first <= j < last of the panel's part, before any edit.
template <class T>
void BlockLoop<T>::score(int p, int first, int last, T* row_max, const T* added) {
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
                             row_max,     added};
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
  kernel(args);
}

// First and second station: the block's scores, edited; their row maxima in w_.row_max.
template <class T>
void BlockLoop<T>::compute_scores(int p) {
  const Panel& panel = group_.panel(p);
  const Part& part = sight_.part(p);
  const bool linear = problem_.weighing.family == Family::linear && !to_be_seen_;
  T* row_max = strategy_.decode || linear ? nullptr : w_.row_max;  // decode finds the maxima while it weighs
  std::fill_n(w_.row_max, panel.lanes, minus_infinity<T>);

  const bool edited = until_ != Until::masked || (problem_.edits_scores() && !exclusion_only());
  const bool looked_up = part.table.state == PairState::mixed;
  const bool by_panel_dot = way_ != nullptr && way_->score->kind == ScoreWay::Kind::dot && !strategy_.decode;
  if (looked_up && !edited && by_panel_dot && !linear) return score(p, 0, part.keys, row_max, part.added);
  if (edited || looked_up) {
    score(p, 0, part.keys, nullptr);
    return edit_scores(p, 0, part.keys, true);
  }
  if (!part.limited) return score(p, 0, part.keys, row_max);
  // Only the keys that not every row sees are edited.
  const auto& ranges = sight_.ranges(p);
  int full_first = 0, full_last = 0;
  if (!ranges.empty_rows && !strategy_.decode) {
    full_first = static_cast<int>(std::clamp<std::int64_t>(ranges.max_first - part.first, 0, part.keys));
    full_last = static_cast<int>(std::clamp<std::int64_t>(ranges.min_last - part.first, full_first, part.keys));
    // What is left over of a tile goes to the edited keys, which then need no tile of their own for it.
    const int tile = strategy_.panel->tile_keys;
    full_first = std::min((full_first + tile - 1) / tile * tile, full_last);
    if (full_last < part.keys) full_last -= (full_last - full_first) % tile;
  }
  if (full_first == full_last) full_first = full_last = part.keys;
  if (full_first > 0) {
    score(p, 0, full_first, nullptr);
    edit_scores(p, 0, full_first, false);
  }
  if (full_first < full_last) score(p, full_first, full_last, row_max);
  if (full_last < part.keys) {
    score(p, full_last, part.keys, nullptr);
    edit_scores(p, full_last, part.keys, false);
  }
}

// All edits, in the order of SEMANTICS.md S2, or only the ranges. The last one finds the row maxima.
template <class T>
void BlockLoop<T>::edit_scores(int p, int first, int last, bool everything) {
  const Part& part = sight_.part(p);
  const ResolvedMask& mask = problem_.mask;
  const auto& edits = *strategy_.edits;
  set_row_parameters(p);
  const bool linear = problem_.weighing.family == Family::linear && !to_be_seen_;
  kernels::EditArgs<T> args{scores_,
                            group_.panel(p).lanes,
                            first,
                            last,
                            nullptr,
                            part.added,
                            w_.slopes,
                            w_.positions,
                            w_.begins,
                            w_.ends,
                            static_cast<T>(problem_.softcap) * unit_,
                            linear ? T(0) : minus_infinity<T>};
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
    args.row_max = i == final_step && !strategy_.decode && !linear ? w_.row_max : nullptr;
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
      if constexpr (std::is_same_v<T, float>) {
        edit.call_float(edit.function, block_of_head(p, h, first, last));
      } else {
        edit.call_double(edit.function, block_of_head(p, h, first, last));
      }
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
    if constexpr (std::is_same_v<T, float>) {
      problem_.score.call_float(problem_.score.function, tile);
    } else {
      problem_.score.call_double(problem_.score.function, tile);
    }
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

template <class T>
void BlockLoop<T>::weigh(int p) {
  const kernels::WeighArgs<T> args{
      scores_, group_.panel(p).lanes, sight_.part(p).keys, w_.row_max, max(p), sum(p), w_.rescale, entropy(p)};
  problem_.weighing.family == Family::linear ? strategy_.weighs->add_up(args) : strategy_.weigh(args);
}

template <class T>
void BlockLoop<T>::drop_weights(int p) {
  const Panel& panel = group_.panel(p);
  const Dropping& dropping = problem_.dropping;
  if (dropping.threshold == 0) return;
  if (scores_ != w_.scores) {  // what is kept for the masses is not dropped
    std::copy_n(scores_, sight_.part(p).keys * panel.lanes, w_.scores);
    scores_ = w_.scores;
  }
  for (int r = 0; r < panel.rows(); ++r) {
    w_.row_keys[r] = row_key(dropping, group_.batch, head() + panel.first_head + r / panel.queries,
                             panel.first_query + r % panel.queries);
  }
  strategy_.weighs->drop({scores_, panel.lanes, panel.rows(), sight_.part(p).keys, sight_.part(p).first, w_.row_keys,
                          dropping.threshold, static_cast<T>(dropping.factor)});
}

// Third and fourth station.
template <class T>
void BlockLoop<T>::pool_block(int p, const MutableView& out) {
  const Panel& panel = group_.panel(p);
  const Part& part = sight_.part(p);
  Progress& progress = progress_[static_cast<std::size_t>(p)];
  if (problem_.weighing.kept > 0) {
    const T* candidates = scores_;
    if (problem_.weighing.family == Family::linear && mark_excluded(p)) {
      // What is excluded is 0 here, and has no place among the best.
      for (int i = 0; i < part.keys * panel.lanes; ++i) {
        if (w_.shadow[i] != minus_infinity<T>) w_.shadow[i] = scores_[i];
      }
      candidates = w_.shadow;
    }
    selection_.add(p, panel, candidates, part.keys, part.first);
  }
  if (problem_.weighing.family == Family::selection) {
    progress = Progress::started;
    return;
  }
  const bool compact = problem_.weighing.compact;
  const bool select = (part.excludes() || compact) && !records_.values_finite();
  if (select && !compact) mark_excluded(p);  // in the weights a pair's 0 may also be a small weight
  weigh(p);
  if (select && compact) {  // a kernel's 0 excludes
    for (int i = 0; i < part.keys * panel.lanes; ++i) w_.shadow[i] = scores_[i] == T(0) ? minus_infinity<T> : T(0);
  }
  drop_weights(p);
  const auto& values = records_.values();
  kernels::PoolArgs<T> args{scores_,
                            panel.lanes,
                            panel.rows(),
                            values.row(part.first - sight_.block().first),
                            values.stride,
                            records_.strip_stride(),
                            static_cast<int>(strategy_.decode ? problem_.Dv : strategy_.value_width(problem_)),
                            part.keys,
                            sums(p),
                            strategy_.value_width(problem_),
                            progress == Progress::none ? nullptr : w_.rescale,
                            nullptr,
                            nullptr,
                            w_.factors,
                            sums(p),
                            strategy_.value_width(problem_)};
  progress = Progress::started;
  std::fill_n(w_.factors, panel.lanes, T(1));
  if (select) return pool_selected(p, args);
  if (part.limited && !strategy_.decode) {
    args.begins = w_.begins;
    args.ends = w_.ends;
  }
  if (finish_with(args, p, out)) progress = Progress::finished;
  (values.staged ? strategy_.pool_staged : strategy_.pool)(args);
}

// The panel's last block may write its outputs itself, where every row has seen something and rows of T in whole
// vectors are wanted.
template <class T>
bool BlockLoop<T>::finish_with(kernels::PoolArgs<T>& args, int p, const MutableView& out) const {
  const Part& part = sight_.part(p);
  const Panel& panel = group_.panel(p);
  const bool last = part.first + part.keys == sight_.ranges(p).max_last;
  if (strategy_.decode || !last || !out || out.dtype() != dtype_of<T> || out.stride(3) != 1 ||
      problem_.Dv % strategy_.vector != 0) {
    return false;
  }
  const Weighing& weighing = problem_.weighing;
  if (!weighing.normalized && problem_.on_empty != OnEmpty::zero) return false;  // it is not known who is empty
  for (int r = 0; r < panel.queries; ++r) {
    const bool empty = weighing.family == Family::linear ? sum(p)[r] == T(0) : max(p)[r] == minus_infinity<T>;
    if (weighing.normalized && empty) return false;
  }
  for (int r = 0; r < panel.queries; ++r) w_.factors[r] = row_factor(weighing, max(p)[r], sum(p)[r]);
  args.out = out.as<T>() + group_.batch * out.stride(0) + head() * out.stride(1) + panel.first_query * out.stride(2);
  args.out_stride = out.stride(2);
  return true;
}

template <class T>
bool BlockLoop<T>::mark_excluded(int p) {
  const Part& part = sight_.part(p);
  if (!part.excludes()) return false;
  const int lanes = group_.panel(p).lanes;
  std::fill_n(w_.shadow, w_.block * lanes, T(0));
  set_row_parameters(p);
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
  const Panel& panel = group_.panel(p);
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

template class BlockLoop<float>;
template class BlockLoop<double>;

}  // namespace qkv
