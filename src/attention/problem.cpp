// attention/problem.cpp: the checks of attend.
#include "attention/problem.h"

#include <cmath>
#include <limits>
#include <string>

#include <qkv/error.h>

#include "base/message.h"
#include "base/parallel.h"

namespace qkv {
namespace {

std::string shapes(const View& q, const View& k, const View& v) {
  return message("q ", q.shape().text(), ", k ", k.shape().text(), ", v ", v.shape().text());
}

// [T, D] and [B, T, D] get their missing axes, of extent 1, in front of T.
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

Dtype compute_dtype(const View& q, const View& k, const View& v, const char* operation) {
  const auto refuse = [&](const char* rule) {
    throw DtypeError(message(operation, ": ", rule, "; q is ", name_of(q.dtype()), ", k ", name_of(k.dtype()), ", v ",
                             name_of(v.dtype())));
  };
  if (!is_floating(q.dtype()) || !is_floating(k.dtype()) || !is_floating(v.dtype()))
    refuse("q, k and v must be floating");
  const bool doubles[] = {q.dtype() == Dtype::float64, k.dtype() == Dtype::float64, v.dtype() == Dtype::float64};
  if (doubles[0] != doubles[1] || doubles[0] != doubles[2]) refuse("float64 does not mix with other dtypes");
  return doubles[0] ? Dtype::float64 : Dtype::float32;
}

}  // namespace

Problem check(const View& q, const View& k, const View& v, const AttendOptions& options, const char* operation) {
  const auto refuse = [&](const std::string& rule) {
    throw ShapeError(message(operation, ": ", rule, ": ", shapes(q, k, v)));
  };
  if (q.rank() < 2 || q.rank() > 4 || k.rank() != q.rank() || v.rank() != q.rank()) {
    refuse("q, k and v must have the same rank, 2, 3 or 4");
  }
  Problem p{};
  p.operation = operation;
  p.compute = compute_dtype(q, k, v, operation);
  p.q = rank4(q);
  p.k = rank4(k);
  p.v = rank4(v);
  p.B = p.q.extent(0);
  p.H = p.q.extent(1);
  p.Tq = p.q.extent(2);
  p.D = p.q.extent(3);
  p.Hk = p.k.extent(1);
  p.Tk = p.k.extent(2);
  p.Dv = p.v.extent(3);
  if (p.k.extent(0) != p.B || p.v.extent(0) != p.B) refuse("q, k and v must have the same B");
  if (p.v.extent(1) != p.Hk) refuse("k and v must have the same number of heads Hk");
  if (p.v.extent(2) != p.Tk) refuse("k and v must have the same length Tk");
  if (p.k.extent(3) != p.D) refuse("q and k must have the same width D");
  if (p.Hk == 0 ? p.H != 0 : p.H % p.Hk != 0) {
    refuse(message("H = ", p.H, " must be a multiple of Hk = ", p.Hk, ", so that heads share evenly"));
  }
  p.group = p.Hk == 0 ? 1 : p.H / p.Hk;
  constexpr std::int64_t widest = std::numeric_limits<std::int32_t>::max() / 8;
  if (p.D > widest || p.Dv > widest) refuse(message("widths beyond ", widest, " are not supported"));

  const auto shape_of = [&](std::int64_t a, std::int64_t b) {
    if (q.rank() == 2) return Shape{a, b};
    if (q.rank() == 3) return Shape{p.B, a, b};
    return Shape{p.B, p.H, a, b};
  };
  p.out_shape = shape_of(p.Tq, p.Dv);
  p.pair_shape = shape_of(p.Tq, p.Tk);
  p.lse_shape = q.rank() == 2 ? Shape{p.Tq} : q.rank() == 3 ? Shape{p.B, p.Tq} : Shape{p.B, p.H, p.Tq};
  std::int64_t pairs = 0, outputs = 0;
  const auto overflows = [&](std::int64_t last, std::int64_t& product) {
    return __builtin_mul_overflow(p.B, p.H, &product) || __builtin_mul_overflow(product, p.Tq, &product) ||
           __builtin_mul_overflow(product, last, &product);
  };
  if (overflows(p.Tk, pairs) || overflows(p.Dv, outputs))
    refuse("the sizes overflow: B * H * Tq * Tk and B * H * Tq * Dv must fit in 64 bits");
  p.out_dtype = options.out_dtype.value_or(q.dtype());
  if (!is_floating(p.out_dtype) || (p.out_dtype == Dtype::float64) != (p.compute == Dtype::float64)) {
    throw DtypeError(message(operation, ": out_dtype ", name_of(p.out_dtype), " does not go with ", name_of(p.compute),
                             " computation"));
  }

  if (options.score.kind > Score::Kind::scaled_dot || options.weigh.kind != Weigh::Kind::softmax) {
    throw OptionError(message(operation, ": this score or weighing is not there yet"));
  }
  p.scale = options.score.kind == Score::Kind::scaled_dot && p.D > 0 ? 1 / std::sqrt(static_cast<double>(p.D)) : 1;
  if (options.scale) p.scale = *options.scale;
  if (!std::isfinite(p.scale)) throw OptionError(message(operation, ": scale must be finite, not ", p.scale));
  p.softcap = options.softcap;
  if (!std::isfinite(p.softcap) || p.softcap < 0) {
    throw OptionError(message(operation, ": softcap must be 0 (off) or positive, not ", p.softcap));
  }
  p.on_empty = options.on_empty;
  p.want_scores = options.want_scores;
  p.want_lse = options.want_lse;
  p.want_weights = options.want_weights;
  p.mask = ResolvedMask(options.mask, {p.B, p.H, p.Tq, p.Tk}, operation);
  for (const mask_part::EditBy& edit : p.mask.edit_by()) {
    if (p.compute == Dtype::float64 ? edit.call_double == nullptr : edit.call_float == nullptr) {
      throw OptionError(message(operation, ": the function given to edit_by does not take ScoreBlock<",
                                p.compute == Dtype::float64 ? "double" : "float", ">, and the computation is in ",
                                name_of(p.compute)));
    }
  }
  p.threads = resolve_threads(options.threads, operation);
  return p;
}

}  // namespace qkv
