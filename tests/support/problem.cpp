// support/problem.cpp: one attention problem: what is asked for, the data for it, and whether the answer is right.
#include "support/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <stdexcept>

#include <gtest/gtest.h>

#include "reference/attend.h"
#include "reference/elements.h"
#include "support/close.h"
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

constexpr KeepSomePairs keep_some_pairs;
constexpr EditByPlace edit_by_place;

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

}  // namespace

std::string_view name_of(MaskKind kind) {
  constexpr std::string_view names[] = {"lengths",   "query_lengths", "causal", "window",     "keep",    "drop",
                                        "keep_keys", "bias",          "alibi",  "block_mask", "keep_by", "edit_by"};
  return names[static_cast<std::size_t>(kind)];
}

bool is_positional(MaskKind kind) {
  return kind == MaskKind::causal || kind == MaskKind::window || kind == MaskKind::alibi;
}

std::string Case::text() const {
  constexpr std::string_view alignments[] = {"unnamed", "top_left", "bottom_right", "offset", "offsets"};
  constexpr std::string_view empties[] = {"zero", "uniform", "nan", "error"};
  constexpr std::string_view stages[] = {"none", "scaled", "capped", "biased"};
  std::ostringstream s;
  s << "B " << B << " H " << H << " Hk " << Hk << " Tq " << Tq << " Tk " << Tk << " D " << D << " Dv " << Dv << ", "
    << qkv::name_of(q) << '/' << qkv::name_of(k) << '/' << qkv::name_of(v) << " to "
    << (out ? qkv::name_of(*out) : "the same") << ", " << name_of(layout) << ", masks";
  for (const MaskKind kind : masks) s << ' ' << name_of(kind);
  s << " (" << alignments[static_cast<std::size_t>(alignment)] << "), softcap " << softcap << ", on_empty "
    << empties[static_cast<std::size_t>(on_empty)] << ", lse " << want_lse << ", weights " << want_weights
    << ", scores " << stages[static_cast<std::size_t>(want_scores)] << ", threads " << threads << ", seed " << seed;
  if (scale) s << ", scale " << *scale;
  return s.str();
}

Problem::Problem(const Case& c) : case_(c), seed_(c.seed * 1000) {
  const Layout query_layout = is_shared(c.layout) ? Layout::dense : c.layout;
  q_ = std::make_unique<LaidOut>(random_tensor({c.B, c.H, c.Tq, c.D}, ++seed_, c.q, c.magnitude), query_layout);
  k_ = std::make_unique<LaidOut>(random_tensor({c.B, c.Hk, c.Tk, c.D}, ++seed_, c.k), c.layout);
  v_ = std::make_unique<LaidOut>(random_tensor({c.B, c.Hk, c.Tk, c.Dv}, ++seed_, c.v), c.layout);
  for (const MaskKind kind : c.masks) options_.mask &= part(kind);
  options_.softcap = c.softcap;
  options_.scale = c.scale;
  options_.on_empty = c.on_empty;
  options_.out_dtype = c.out;
  options_.want_lse = c.want_lse;
  options_.want_weights = c.want_weights;
  options_.want_scores = c.want_scores;
  options_.threads = c.threads;
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
    case MaskKind::window:
      return window(random.below(c.Tk + 2) - 1, random.below(c.Tk / 2 + 2) - 1, next_alignment());
    case MaskKind::keep:
      return keep(hold(random_booleans(broadcast_shape(c, random.bits()), seed, 0.7)));
    case MaskKind::drop:
      return drop(hold(random_booleans(broadcast_shape(c, random.bits()), seed, 0.3)));
    case MaskKind::keep_keys:
      return keep_keys(hold(random_booleans({c.B, c.Tk}, seed, 0.7)));
    case MaskKind::bias: {
      constexpr Dtype dtypes[] = {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::bfloat16};
      Tensor added = random_tensor(broadcast_shape(c, random.bits()), seed, dtypes[random.below(4)], 2);
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
      return edit_by(edit_by_place);
  }
  throw std::logic_error("part: a kind of mask that does not exist");
}

namespace {

// The longest row: its Euclidean length.
double longest(const View& x) {
  const std::vector<double> all = reference::elements<double>(x);
  const auto width = static_cast<std::size_t>(x.shape().back());
  double longest_square = 0;
  for (std::size_t row = 0; width > 0 && row < all.size(); row += width) {
    double square = 0;
    for (std::size_t d = 0; d < width; ++d) square += all[row + d] * all[row + d];
    if (std::isfinite(square)) longest_square = std::max(longest_square, square);
  }
  return std::sqrt(longest_square);
}

Shape with_last(const Shape& shape, std::int64_t extent) {
  std::vector<std::int64_t> extents(shape.begin(), shape.end());
  extents.back() = extent;
  return Shape(extents);
}

Shape without_last(const Shape& shape) {
  const std::vector<std::int64_t> extents(shape.begin(), shape.end() - 1);
  return Shape(extents);
}

}  // namespace

void expect_right(const View& q, const View& k, const View& v, const AttendOptions& options) {
  const Attended got = attend(q, k, v, options);
  const reference::Attended<double> exact = reference::attend<double>(q, k, v, options);
  const reference::Attended<float> plain = reference::attend<float>(q, k, v, options);

  // What is rounded on the way: scores up to |q| |k| scale, and values weighed by e to the power of such scores.
  const double width = std::max<double>(1, static_cast<double>(q.shape().back()));
  const double scale = options.scale ? std::abs(*options.scale) : 1 / std::sqrt(width);
  double added = 0;
  for (const double score : exact.scores) added = std::isfinite(score) ? std::max(added, std::abs(score)) : added;
  for (const double lse : exact.lse) added = std::isfinite(lse) ? std::max(added, std::abs(lse)) : added;
  const double score = 1 + longest(q) * longest(k) * scale + added;
  const double value = largest_magnitude(v);

  const Dtype computed = q.dtype() == Dtype::float64 ? Dtype::float64 : Dtype::float32;
  const std::int64_t Tk = k.extent(k.rank() - 2);
  EXPECT_EQ(got.out.shape(), with_last(q.shape(), v.shape().back()));
  EXPECT_EQ(got.out.dtype(), options.out_dtype.value_or(q.dtype()));
  EXPECT_TRUE(is_close(got.out, {exact.out, plain.out, score * value})) << "in out";

  ASSERT_EQ(static_cast<bool>(got.lse), options.want_lse);
  if (options.want_lse) {
    EXPECT_EQ(got.lse.shape(), without_last(q.shape()));
    EXPECT_EQ(got.lse.dtype(), computed);
    EXPECT_TRUE(is_close(got.lse, {exact.lse, plain.lse, score})) << "in lse";
  }
  ASSERT_EQ(static_cast<bool>(got.weights), options.want_weights);
  if (options.want_weights) {
    EXPECT_EQ(got.weights.shape(), with_last(q.shape(), Tk));
    EXPECT_EQ(got.weights.dtype(), computed);
    EXPECT_TRUE(is_close(got.weights, {exact.weights, plain.weights, score})) << "in weights";
  }
  ASSERT_EQ(static_cast<bool>(got.scores), options.want_scores != ScoreStage::none);
  if (options.want_scores != ScoreStage::none) {
    EXPECT_EQ(got.scores.shape(), with_last(q.shape(), Tk));
    EXPECT_EQ(got.scores.dtype(), computed);
    EXPECT_TRUE(is_close(got.scores, {exact.scores, plain.scores, score})) << "in scores";
  }
}

void expect_right(const Problem& problem) { expect_right(problem.q(), problem.k(), problem.v(), problem.options()); }

void expect_right(const Case& c) {
  SCOPED_TRACE(c.text());
  expect_right(Problem(c));
}

}  // namespace qkv::test
