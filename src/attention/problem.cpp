// attention/problem.cpp: the checks of attend.
#include "attention/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <string_view>

#include <qkv/error.h>

#include "attention/score_parameters.h"
#include "base/message.h"
#include "base/parallel.h"
#include "tensor/elements.h"

namespace qkv {
namespace {

std::string shapes(const View& q, const View& k, const View& v) {
  return message("q ", q.shape().text(), ", k ", k.shape().text(), ", v ", v.shape().text());
}

std::string_view name_of(Weigh::Kind kind) {
  switch (kind) {
    case Weigh::Kind::softmax:
      return "softmax";
    case Weigh::Kind::normalize:
      return "normalize";
    case Weigh::Kind::raw:
      return "raw";
    case Weigh::Kind::hard:
      return "hard";
    case Weigh::Kind::uniform:
      return "uniform";
    case Weigh::Kind::top_k:
      return "top_k";
  }
  return "unknown";
}

void set_extents(Problem& p, const View& q, const View& k, const View& v) {
  const auto refuse = [&](const std::string& rule) {
    throw ShapeError(message(p.operation, ": ", rule, ": ", shapes(q, k, v)));
  };
  if (q.rank() < 2 || q.rank() > 4 || k.rank() != q.rank() || v.rank() != q.rank()) {
    refuse("q, k and v must have the same rank, 2, 3 or 4");
  }
  p.rank = q.rank();
  p.compute = compute_dtype({{"q", q.dtype()}, {"k", k.dtype()}, {"v", v.dtype()}}, p.operation);
  p.q = rank4(q);
  p.k = rank4(k);
  p.v = rank4(v);
  p.B = p.q.extent(0);
  p.H = p.q.extent(1);
  p.Tq = p.q.extent(2);
  p.D = p.q.extent(3);
  p.Hk = p.k.extent(1);
  p.Tk = p.k.extent(2);
  p.Dk = p.k.extent(3);
  p.Dv = p.v.extent(3);
  if (p.k.extent(0) != p.B || p.v.extent(0) != p.B) refuse("q, k and v must have the same B");
  if (p.v.extent(1) != p.Hk) refuse("k and v must have the same number of heads Hk");
  if (p.v.extent(2) != p.Tk) refuse("k and v must have the same length Tk");
  const bool own_widths = p.score.kind == Score::Kind::bilinear || p.score.kind == Score::Kind::additive;
  if (p.Dk != p.D && !own_widths) refuse("q and k must have the same width D");
  if (p.Hk == 0 ? p.H != 0 : p.H % p.Hk != 0) {
    refuse(message("H = ", p.H, " must be a multiple of Hk = ", p.Hk, ", so that heads share evenly"));
  }
  p.group = p.Hk == 0 ? 1 : p.H / p.Hk;
  constexpr std::int64_t widest = std::numeric_limits<std::int32_t>::max() / 8;
  if (p.D > widest || p.Dk > widest || p.Dv > widest) refuse(message("widths beyond ", widest, " are not supported"));
  std::int64_t pairs = 0, outputs = 0;
  const auto overflows = [&](std::int64_t last, std::int64_t& product) {
    return __builtin_mul_overflow(p.B, p.H, &product) || __builtin_mul_overflow(product, p.Tq, &product) ||
           __builtin_mul_overflow(product, last, &product);
  };
  if (overflows(p.Tk, pairs) || overflows(p.Dv, outputs))
    refuse("the sizes overflow: B * H * Tq * Tk and B * H * Tq * Dv must fit in 64 bits");
}

void set_score(Problem& p, const AttendOptions& options) {
  const Score::Kind kind = p.score.kind;
  p.scale = kind == Score::Kind::scaled_dot && p.D > 0 ? 1 / std::sqrt(static_cast<double>(p.D)) : 1;
  if (options.scale) {
    if (kind > Score::Kind::bilinear) {
      throw OptionError(message(p.operation, ": scale is for dot, scaled_dot, cosine and bilinear, not for ",
                                name_of(kind), p.score.is_kernel() ? "; kernels have sigma" : ""));
    }
    p.scale = *options.scale;
  }
  if (!std::isfinite(p.scale)) throw OptionError(message(p.operation, ": scale must be finite, not ", p.scale));
  p.softcap = options.softcap;
  if (!std::isfinite(p.softcap) || p.softcap < 0) {
    throw OptionError(message(p.operation, ": softcap must be 0 (off) or positive, not ", p.softcap));
  }
  if (p.softcap != 0 && p.score.is_kernel()) {
    throw OptionError(
        message(p.operation, ": softcap is not for kernels such as ", name_of(kind), ", whose scores are logarithms"));
  }
}

void set_weighing(Problem& p, const AttendOptions& options) {
  const Weigh& weigh = options.weigh;
  const double temperature = options.temperature;
  const double least = p.compute == Dtype::float64 ? 1e-300 : 1e-30;
  if (!(temperature >= least && temperature <= 1 / least)) {
    throw OptionError(message(p.operation, ": temperature must be positive and finite, from ", least, " to ", 1 / least,
                              ", not ", temperature));
  }
  const Score::Kind score = p.score.kind;
  const bool kernel = p.score.is_kernel();
  const bool biased = std::any_of(p.mask.dense().begin(), p.mask.dense().end(), [](const ResolvedMask::Dense& part) {
    return part.kind == ResolvedMask::Dense::Kind::bias;
  });
  Weighing& w = p.weighing;
  w.compact = score == Score::Kind::boxcar || score == Score::Kind::triangular || score == Score::Kind::epanechnikov;
  // Where nothing is added to the logarithm of a compact kernel, there is no need for logarithms.
  const bool as_values =
      w.compact && !biased && temperature == 1 && p.mask.slopes().empty() && p.mask.edit_by().empty();
  switch (weigh.kind) {
    case Weigh::Kind::softmax:
      w.family = as_values ? Family::linear : Family::exponential;
      break;
    case Weigh::Kind::normalize:
      w.family = kernel && !as_values ? Family::exponential : Family::linear;
      break;
    case Weigh::Kind::raw:
      w.family = kernel && !as_values ? Family::exponential : Family::linear;
      w.normalized = false;
      w.compact = false;
      break;
    case Weigh::Kind::uniform:
      w.exclusion_only = true;
      w.compact = false;
      break;
    case Weigh::Kind::hard:
      w.family = Family::selection;
      w.hard = true;
      w.selected = 1;
      w.minimum = weigh.minimum;
      w.compact = false;
      if (w.minimum && std::isnan(*w.minimum)) {
        throw OptionError(message(p.operation, ": the minimum score of hard must be a number, not NaN"));
      }
      break;
    case Weigh::Kind::top_k:
      if (weigh.k < 1) throw OptionError(message(p.operation, ": top_k needs k of at least 1, not ", weigh.k));
      w.family = Family::selection;
      w.selected = std::min(weigh.k, std::max<std::int64_t>(p.Tk, 1));
      break;
  }
  w.kernel_values = w.family == Family::linear && kernel;
  w.unit = w.family == Family::exponential ? std::numbers::log2e / temperature : 1 / temperature;
  if (options.want_top < 0) {
    throw OptionError(message(p.operation, ": want_top must be 0 (none) or positive, not ", options.want_top));
  }
  p.want_top = options.want_top;
  w.kept = std::max(w.selected, std::min(p.want_top, std::max<std::int64_t>(p.Tk, 1)));

  const auto refuse = [&](const char* what, const char* with) {
    throw OptionError(message(p.operation, ": ", what, " does not go with ", with));
  };
  const bool sums =
      weigh.kind == Weigh::Kind::softmax || weigh.kind == Weigh::Kind::normalize || weigh.kind == Weigh::Kind::top_k;
  const auto require_sum = [&](bool wanted, const char* what) {
    if (!wanted || sums) return;
    throw OptionError(
        message(p.operation, ": ", what, " is of softmax, normalize and top_k; ", name_of(weigh.kind), " has none"));
  };
  require_sum(options.want_lse, "the log-sum-exp (lse)");
  require_sum(options.want_entropy, "entropy");
  require_sum(options.want_effective, "the effective number of keys (effective)");
  if (w.exclusion_only && p.want_top > 0) refuse("want_top", "uniform, whose scores have no say");
  if (options.want_partial && weigh.kind == Weigh::Kind::top_k) refuse("want_partial", "top_k, which cannot be merged");
  if (options.want_partial && options.on_empty != OnEmpty::zero) {
    refuse("want_partial", "on_empty other than zero: an empty part must stay empty");
  }
  if (options.want_partial && options.dropout > 0) {
    refuse("want_partial", "dropout: every part would drop the same keys, counted from its own first");
  }
  if (options.want_partial || options.want_backward) {
    p.state_kind = w.exclusion_only                        ? PartialState::count
                   : w.hard                                ? PartialState::best
                   : !w.normalized                         ? PartialState::answer
                   : w.family == Family::linear && !kernel ? PartialState::sum
                                                           : PartialState::log_sum;
  }
}

void set_dropout(Problem& p, const AttendOptions& options) {
  const double rate = options.dropout;
  if (!(rate >= 0 && rate < 1)) {
    throw OptionError(message(p.operation, ": dropout must be at least 0 and below 1, not ", rate));
  }
  if (!options.training || rate == 0) return;
  if (!options.seed) throw OptionError(message(p.operation, ": dropout in training needs a seed"));
  p.dropping.threshold = drop_threshold(rate);
  p.dropping.factor = 1 / (1 - rate);
  p.dropping.seed = *options.seed;
  const View& ids = options.sequence_ids;
  if (ids) require_integers(ids, "sequence_ids", p.operation);
  if (ids && (ids.rank() != 1 || ids.extent(0) != p.B)) {
    throw ShapeError(
        message(p.operation, ": sequence_ids of shape ", ids.shape().text(), " must be [B] with B = ", p.B));
  }
  for (std::int64_t b = 0; b < p.B; ++b) {
    p.dropping.sequence_ids.push_back(ids ? integer_at(ids, b * ids.stride(0)) : b);
  }
}

void set_wants(Problem& p, const AttendOptions& options) {
  p.want_scores = options.want_scores;
  p.want_lse = options.want_lse;
  p.want_weights = options.want_weights;
  p.want_mass = options.want_mass;
  p.want_entropy = options.want_entropy;
  p.want_effective = options.want_effective;
  p.want_partial = options.want_partial;
  p.want_backward = options.want_backward;
  const View& rows = options.want_rows;
  p.want_row_weights = static_cast<bool>(rows);
  if (!rows) return;
  require_integers(rows, "want_rows", p.operation);
  if (rows.rank() != 1) {
    throw ShapeError(message(p.operation, ": want_rows of shape ", rows.shape().text(), " must be [R]"));
  }
  for (std::int64_t i = 0; i < rows.extent(0); ++i) {
    const std::int64_t row = integer_at(rows, i * rows.stride(0));
    if (row < 0 || row >= p.Tq) {
      throw ShapeError(message(p.operation, ": row ", row, " of want_rows is outside 0..Tq-1 with Tq = ", p.Tq));
    }
    p.want_rows.push_back(row);
  }
}

}  // namespace

View rank4(const View& view) {
  const Shape& shape = view.shape();
  switch (view.rank()) {
    case 2:
      return View(view.data(), view.dtype(), Shape{1, 1, shape[0], shape[1]},
                  Strides{0, 0, view.stride(0), view.stride(1)});
    case 3:
      return View(view.data(), view.dtype(), Shape{shape[0], 1, shape[1], shape[2]},
                  Strides{view.stride(0), 0, view.stride(1), view.stride(2)});
    default:
      return view;
  }
}

void refuse_shape(const View& view, const Shape& shape, const Problem& problem, const char* name) {
  throw ShapeError(
      message(problem.operation, ": ", name, " of shape ", view.shape().text(), " must be ", shape.text()));
}

Dtype compute_dtype(std::initializer_list<NamedDtype> inputs, const char* operation) {
  const auto refuse = [&](const char* rule) {
    std::string given;
    for (const NamedDtype& input : inputs) {
      given += message(given.empty() ? "" : ", ", input.name, given.empty() ? " is " : " ", name_of(input.dtype));
    }
    throw DtypeError(message(operation, ": ", rule, "; ", given));
  };
  const bool doubles = inputs.begin()->dtype == Dtype::float64;
  for (const NamedDtype& input : inputs) {
    if (!is_floating(input.dtype)) refuse("queries, keys and values must be floating");
    if ((input.dtype == Dtype::float64) != doubles) refuse("float64 does not mix with other dtypes");
  }
  return doubles ? Dtype::float64 : Dtype::float32;
}

Shape Problem::shape(std::initializer_list<std::int64_t> last) const {
  std::vector<std::int64_t> extents;
  if (rank > 2) extents.push_back(B);
  if (rank > 3) extents.push_back(H);
  extents.insert(extents.end(), last);
  return Shape(extents);
}

std::string Problem::shapes() const {
  const auto as_given = [&](const View& view) {
    std::vector<std::int64_t> extents = {view.extent(2), view.extent(3)};
    if (rank > 3) extents.insert(extents.begin(), view.extent(1));
    if (rank > 2) extents.insert(extents.begin(), view.extent(0));
    return Shape(extents).text();
  };
  return message("q ", as_given(q), ", k ", as_given(k), ", v ", as_given(v));
}

Problem check(const View& q, const View& k, const View& v, const AttendOptions& options, const char* operation) {
  Problem p{};
  p.operation = operation;
  p.score = options.score;
  set_extents(p, q, k, v);
  p.out_dtype = options.out_dtype.value_or(q.dtype());
  if (!is_floating(p.out_dtype) || (p.out_dtype == Dtype::float64) != (p.compute == Dtype::float64)) {
    throw DtypeError(message(operation, ": out_dtype ", name_of(p.out_dtype), " does not go with ", name_of(p.compute),
                             " computation"));
  }
  set_score(p, options);
  p.on_empty = options.on_empty;
  p.mask = ResolvedMask(options.mask, {p.B, p.H, p.Tq, p.Tk}, operation);
  for (const mask_part::EditBy& edit : p.mask.edit_by()) {
    if (p.compute == Dtype::float64 ? edit.call_double == nullptr : edit.call_float == nullptr) {
      throw OptionError(message(operation, ": the function given to edit_by does not take ScoreBlock<",
                                p.compute == Dtype::float64 ? "double" : "float", ">, and the computation is in ",
                                name_of(p.compute)));
    }
  }
  set_weighing(p, options);
  set_dropout(p, options);
  set_wants(p, options);
  p.threads = resolve_threads(options.threads, operation);
  return p;
}

}  // namespace qkv
