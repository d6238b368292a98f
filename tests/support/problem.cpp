// support/problem.cpp: the data of one attention problem.
#include "support/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/elements.h"
#include "reference/score.h"
#include "support/random.h"

namespace qkv::test {

namespace {

// Keeps pairs by their absolute place, so that it means the same however the work is cut into blocks: of every three
// runs of 32 keys one is kept whole, one is dropped whole, one is mixed.
struct KeepSomePairs {
  static bool keeps(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const std::int64_t run = (j / 32 + b) % 3;
    return run == 1 || (run == 0 && (i * 7 + j * 3 + h) % 5 != 0);
  }
  Kept operator()(const KeepBlock& block) const {
    std::int64_t kept = 0;
    for (std::int64_t j = 0; j < block.keys; ++j) {
      for (std::int64_t i = 0; i < block.queries; ++i) {
        block.at(i, j) = keeps(block.batch, block.head, block.first_query + i, block.first_key + j);
        kept += block.at(i, j) ? 1 : 0;
      }
    }
    if (kept != 0 && kept != block.queries * block.keys) return Kept::some;
    // What is in `keep` counts only for Kept::some: leave the opposite of the answer there.
    for (std::int64_t j = 0; j < block.keys; ++j) {
      for (std::int64_t i = 0; i < block.queries; ++i) block.at(i, j) = kept == 0;
    }
    return kept == 0 ? Kept::none : Kept::all;
  }
};

// Halves a score and adds an eighth per step of a pattern over absolute places; exact in every type.
struct EditByPlace {
  template <class T>
  void operator()(const ScoreBlock<T>& block) const {
    for (std::int64_t j = 0; j < block.keys; ++j) {
      for (std::int64_t i = 0; i < block.queries; ++i) {
        const std::int64_t step =
            ((block.first_query + i) * 3 + (block.first_key + j) * 5 + block.head + block.batch) % 7;
        block.at(i, j) = block.at(i, j) * static_cast<T>(0.5) + static_cast<T>(step) * static_cast<T>(0.125);
      }
    }
  }
};

// A score of one's own: 8 / (1 + r), r the mean distance along the axes.
struct AlongTheAxes {
  template <class T>
  void operator()(const ScoreTile<T>& tile) const {
    for (std::int64_t j = 0; j < tile.keys; ++j) {
      for (std::int64_t i = 0; i < tile.queries; ++i) {
        T sum = 0;
        for (std::int64_t d = 0; d < tile.width; ++d) sum += std::abs(tile.query(i)[d] - tile.key(j)[d]);
        tile.at(i, j) = 8 / (1 + sum / static_cast<T>(std::max<std::int64_t>(1, tile.width)));
      }
    }
  }
};

// The derivatives of both.
struct HalveSlopes {
  template <class T>
  void operator()(const SlopeBlock<T>& block) const {
    for (std::int64_t j = 0; j < block.keys; ++j) {
      for (std::int64_t i = 0; i < block.queries; ++i) block.at(i, j) *= static_cast<T>(0.5);
    }
  }
};
struct SlopesAlongTheAxes {
  template <class T>
  void operator()(const SlopeTile<T>& tile) const {
    for (std::int64_t j = 0; j < tile.keys; ++j) {
      for (std::int64_t i = 0; i < tile.queries; ++i) {
        if (tile.at(i, j) == T(0)) continue;
        T sum = 0;
        for (std::int64_t d = 0; d < tile.width; ++d) sum += std::abs(tile.query(i)[d] - tile.key(j)[d]);
        const T r = 1 + sum / static_cast<T>(tile.width);
        for (std::int64_t d = 0; d < tile.width; ++d) {
          const T sign = tile.query(i)[d] > tile.key(j)[d] ? T(1) : T(-1);
          const T slope = tile.at(i, j) * sign * T(-8) / (r * r * static_cast<T>(tile.width));
          tile.dquery(i)[d] += slope;
          tile.dkey(j)[d] -= slope;
        }
      }
    }
  }
};

constexpr KeepSomePairs keep_some_pairs;
constexpr HalveSlopes halve_slopes;
constexpr SlopesAlongTheAxes slopes_along_the_axes;
constexpr EditByPlace edit_by_place;
constexpr AlongTheAxes along_the_axes;

// One of the shapes that broadcast over [B, H, Tq, Tk].
Shape broadcast_shape(const Case& c, std::uint64_t seed) {
  switch (seed % 6) {
    case 0:
      return {c.B, c.H, c.Tq, c.Tk};
    case 1:
      return {c.Tq, c.Tk};
    case 2:
      return {c.B, 1, c.Tq, c.Tk};
    case 3:
      return {c.H, 1, c.Tk};
    case 4:
      return {1, c.H, c.Tq, 1};
    default:
      return {c.Tk};
  }
}

bool is_shared(Layout layout) { return layout == Layout::shared_heads || layout == Layout::shared_batch; }

Dtype computed_in(const Case& c) { return c.q == Dtype::float64 ? Dtype::float64 : Dtype::float32; }

bool picks(const Weigh& weigh) { return weigh.kind == Weigh::Kind::hard || weigh.kind == Weigh::Kind::top_k; }

// Scores are divided by their sum: it must not be near 0.
bool divides_scores(const Case& c) { return c.weigh.kind == Weigh::Kind::normalize && !is_kernel(c.score); }

Tensor numbers(const Case& c, const Shape& shape, std::uint64_t seed, Dtype dtype, double scale = 1) {
  Tensor tensor = random_tensor(shape, seed, dtype, scale);
  for (std::int64_t i = 0; divides_scores(c) && i < tensor.elements(); ++i) {
    set_element(tensor.view(), i, std::abs(reference::element(tensor, i)));
  }
  return tensor;
}

// Every fifth key becomes a copy of the one three places before it.
void make_twins(const MutableView& k) {
  for (std::int64_t head = 0; head < k.extent(0) * k.extent(1); ++head) {
    for (std::int64_t j = 4; j < k.extent(2); j += 5) {
      for (std::int64_t d = 0; d < k.extent(3); ++d) {
        const std::int64_t to = (head * k.extent(2) + j) * k.extent(3) + d;
        set_element(k, to, reference::element(k, to - 3 * k.extent(3)));
      }
    }
  }
}

// A distance in the middle of the widest gap between the distances u of all pairs, not among the smallest and the
// largest of them.
double widest_gap(const Score& kernel, const View& q, const View& k) {
  const reference::Scores<double> minus_u({.kind = Score::Kind::laplace, .bandwidths = kernel.bandwidths}, q, k);
  std::vector<double> u;
  for (std::int64_t b = 0; b < q.extent(0); ++b) {
    for (std::int64_t h = 0; h < q.extent(1); ++h) {
      for (std::int64_t i = 0; i < q.extent(2); ++i) {
        for (const double s : minus_u.row(b, h, i)) u.push_back(-s);
      }
    }
  }
  std::sort(u.begin(), u.end());
  double place = 1, gap = 0;
  for (std::size_t n = u.size() / 4; n + 1 < u.size() && n <= u.size() * 2 / 3; ++n) {
    if (u[n + 1] - u[n] <= gap) continue;
    gap = u[n + 1] - u[n];
    place = (u[n + 1] + u[n]) / 2;
  }
  return place;
}

}  // namespace

Problem::Problem(const Case& c) : case_(c), seed_(c.seed * 1000) {
  const Layout query_layout = is_shared(c.layout) ? Layout::dense : c.layout;
  const std::int64_t Dk = takes_two_widths(c.score) ? c.Dk.value_or(c.D) : c.D;
  q_ = std::make_unique<LaidOut>(numbers(c, {c.B, c.H, c.Tq, c.D}, ++seed_, c.q, c.magnitude), query_layout);
  Tensor k = numbers(c, {c.B, c.Hk, c.Tk, Dk}, ++seed_, c.k);
  if (picks(c.weigh) || c.want_top > 0) make_twins(k);
  k_ = std::make_unique<LaidOut>(k, c.layout);
  v_ = std::make_unique<LaidOut>(random_tensor({c.B, c.Hk, c.Tk, c.Dv}, ++seed_, c.v), c.layout);
  for (const MaskKind kind : c.masks) options_.mask &= part(kind);
  options_.score = score();
  options_.softcap = is_kernel(c.score) ? 0 : c.softcap;
  options_.scale = c.scale;
  options_.temperature = c.temperature;
  options_.weigh = c.weigh;
  options_.on_empty = c.on_empty;
  options_.dropout = c.dropout;
  options_.training = c.dropout > 0;
  if (c.dropout > 0) options_.seed = c.seed;
  options_.out_dtype = c.out;
  options_.want_lse = c.want_lse && has_log_sum(c.weigh);
  options_.want_weights = c.want_weights;
  options_.want_scores = c.want_scores;
  options_.want_mass = c.want_mass;
  options_.want_entropy = c.want_entropy && has_log_sum(c.weigh);
  options_.want_effective = c.want_effective && has_log_sum(c.weigh);
  options_.want_top = c.weigh.kind == Weigh::Kind::uniform ? 0 : c.want_top;
  options_.want_partial = c.want_partial && c.weigh.kind != Weigh::Kind::top_k && c.on_empty == OnEmpty::zero;
  if (!c.want_rows.empty()) {
    options_.want_rows = hold(Tensor::copy_of(View(c.want_rows, {static_cast<std::int64_t>(c.want_rows.size())})));
  }
  options_.threads = c.threads;
}

View Problem::parameter(std::vector<std::int64_t> extents, double scale) {
  if (case_.parameters_per_head) extents.insert(extents.begin(), case_.H);
  const Dtype dtype = case_.parameters.value_or(computed_in(case_));
  return hold(numbers(case_, Shape(extents), ++seed_, dtype, scale));
}

Score Problem::score() {
  const Case& c = case_;
  const std::int64_t Dq = c.D, Dk = k_->view().extent(3);
  const auto root = [](std::int64_t width) { return std::sqrt(static_cast<double>(std::max<std::int64_t>(1, width))); };
  switch (c.score) {
    case Score::Kind::dot:
      return dot();
    case Score::Kind::scaled_dot:
      return scaled_dot();
    case Score::Kind::cosine:
      return cosine();
    case Score::Kind::bilinear:
      return bilinear(parameter({Dq, Dk}, 2 / (root(Dq) * root(Dk))));
    case Score::Kind::additive: {
      const View Wq = parameter({c.E, Dq}, 0.7 / root(Dq)), Wk = parameter({c.E, Dk}, 0.7 / root(Dk));
      return additive(Wq, Wk, parameter({c.E}, 3 / root(c.E)));
    }
    case Score::Kind::constant:
      return constant();
    case Score::Kind::yours:
      return score_by(along_the_axes, slopes_along_the_axes);
    default:
      return kernel();
  }
}

Score Problem::kernel() {
  const Case& c = case_;
  const std::int64_t heads = c.bandwidth >= Bandwidth::per_head ? c.H : 1;
  const bool per_coordinate =
      c.bandwidth == Bandwidth::per_coordinate || c.bandwidth == Bandwidth::per_head_and_coordinate;
  const std::int64_t width = per_coordinate ? c.D : 1;
  const Shape shape = c.bandwidth >= Bandwidth::per_head ? Shape{heads, width} : Shape{width};

  Score score{.kind = c.score};
  // A compact kernel's edge must stay where it is put, so its bandwidth is not rounded to half precision.
  const Dtype dtype = reference::is_compact(score) ? computed_in(c) : c.parameters.value_or(computed_in(c));
  Tensor sigma(shape, dtype);
  Random random(++seed_);
  const double typical = std::sqrt(static_cast<double>(std::max<std::int64_t>(1, c.D)));
  for (std::int64_t i = 0; i < sigma.elements(); ++i) {
    set_element(sigma.view(), i, typical * (0.7 + 0.6 * random.uniform()));
  }
  score.bandwidths = sigma;
  if (reference::is_compact(score)) {
    const double edge = widest_gap(score, q(), k());
    for (std::int64_t i = 0; i < sigma.elements(); ++i) {
      set_element(sigma.view(), i, reference::element(sigma, i) * edge);
    }
  }
  if (c.bandwidth == Bandwidth::number) {
    score.bandwidth = reference::element(sigma, 0);
    score.bandwidths = {};
  } else {
    score.bandwidths = hold(std::move(sigma));
  }
  return score;
}

View Problem::hold(Tensor tensor) {
  held_.push_back(std::move(tensor));
  return held_.back();
}

Alignment Problem::next_alignment() {
  if (std::exchange(alignment_is_named_, true)) return {};
  switch (case_.alignment) {
    case Alignment::Kind::unnamed:
      return {};
    case Alignment::Kind::top_left:
      return top_left();
    case Alignment::Kind::bottom_right:
      return bottom_right();
    case Alignment::Kind::offset:
      return offset(case_.Tk / 2 - 1);
    case Alignment::Kind::offsets:
      return offset(hold(random_integers({case_.B}, ++seed_, -2, case_.Tk, Dtype::int32)));
  }
  throw std::logic_error("next_alignment: an alignment that does not exist");
}

Mask Problem::part(MaskKind kind) {
  const Case& c = case_;
  const std::uint64_t seed = ++seed_;
  Random random(seed);
  switch (kind) {
    case MaskKind::lengths:
      return lengths(hold(random_integers({c.B}, seed, 0, c.Tk)));
    case MaskKind::query_lengths:
      return lengths(hold(random_integers({c.B, c.Tq}, seed, 0, c.Tk, Dtype::int32)));
    case MaskKind::causal:
      return causal(next_alignment());
    case MaskKind::window: {
      const std::int64_t right = random.below(c.Tk / 2 + 2) - 1, left = random.below(c.Tk + 2) - 1;
      return window(left, right, next_alignment());
    }
    case MaskKind::keep:
      return keep(hold(random_booleans(broadcast_shape(c, random.bits()), seed, 0.7)));
    case MaskKind::drop:
      return drop(hold(random_booleans(broadcast_shape(c, random.bits()), seed, 0.3)));
    case MaskKind::keep_keys:
      return keep_keys(hold(random_booleans({c.B, c.Tk}, seed, 0.7)));
    case MaskKind::bias: {
      constexpr Dtype dtypes[] = {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::bfloat16};
      const Dtype dtype = dtypes[random.below(4)];  // drawn one after the other, in the same order by every compiler
      Tensor added = random_tensor(broadcast_shape(c, random.bits()), seed, dtype, 2);
      for (std::int64_t i = 0; i < added.elements(); ++i) {
        if (random.chance(0.15)) set_element(added.view(), i, -std::numeric_limits<double>::infinity());
      }
      return bias(hold(std::move(added)));
    }
    case MaskKind::alibi: {
      const View slopes = hold(random_tensor({c.H}, seed, random.chance(0.5) ? Dtype::float32 : Dtype::float64, 0.3));
      return alibi(slopes, next_alignment());
    }
    case MaskKind::block_mask: {
      const std::int64_t queries = 1 + random.below(20), keys = 1 + random.below(70);
      const std::int64_t rows = (c.Tq + queries - 1) / queries, columns = (c.Tk + keys - 1) / keys;
      const Shape shape = random.chance(0.5) ? Shape{rows, columns} : Shape{c.B, 1, rows, columns};
      return block_mask(hold(random_booleans(shape, seed, 0.6)), queries, keys);
    }
    case MaskKind::keep_by:
      return keep_by(keep_some_pairs);
    case MaskKind::edit_by:
      return edit_by(edit_by_place, halve_slopes);
  }
  throw std::logic_error("part: a kind of mask that does not exist");
}

}  // namespace qkv::test
