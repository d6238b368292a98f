// attention/score_parameters.cpp: the checks of what a score carries.
#include "attention/score_parameters.h"

#include <array>
#include <cmath>
#include <span>

#include <qkv/error.h>

#include "base/message.h"

namespace qkv {
namespace {

// An array that a score carries, and its rank where the heads share it.
struct Parameter {
  const char* name = nullptr;
  const View* view = nullptr;
  int rank = 0;

  bool has_heads() const { return view->rank() == rank + 1; }
  std::int64_t from_last(int axis) const { return view->extent(view->rank() - 1 - axis); }
};

// Without a view where the score has fewer.
using Parameters = std::array<Parameter, 3>;

Parameters parameters_of(const Score& score) {
  if (score.kind == Score::Kind::bilinear) return {{{"M", &score.matrix, 2}, {}, {}}};
  if (score.kind == Score::Kind::additive) {
    return {{{"Wq", &score.query_weights, 2}, {"Wk", &score.key_weights, 2}, {"w", &score.hidden_weights, 1}}};
  }
  if (score.is_kernel() && score.bandwidths) return {{{"sigma", &score.bandwidths, 1}, {}, {}}};
  return {};
}

bool ranks_and_heads_fit(const Parameters& parameters, const ScoreUse& use) {
  std::optional<std::int64_t> H;
  if (use.queries) H = use.queries->H;
  for (const Parameter& parameter : parameters) {
    if (parameter.view == nullptr || parameter.view->rank() == parameter.rank) continue;
    if (!parameter.has_heads()) return false;
    const std::int64_t heads = parameter.view->extent(0);
    if (heads != H.value_or(heads) || (use.Hk == 0 ? heads != 0 : heads % use.Hk != 0)) return false;
    H = heads;
  }
  return true;
}

bool widths_fit(const Score& score, const Parameters& parameters, const ScoreUse& use) {
  const auto& [first, second, third] = parameters;
  const auto as_queries = [&](std::int64_t width) { return !use.queries || width == use.queries->Dq; };
  switch (score.kind) {
    case Score::Kind::bilinear:
      return as_queries(first.from_last(1)) && first.from_last(0) == use.Dk;
    case Score::Kind::additive: {
      const std::int64_t E = third.from_last(0);
      return first.from_last(1) == E && as_queries(first.from_last(0)) && second.from_last(1) == E &&
             second.from_last(0) == use.Dk;
    }
    default:
      return first.view == nullptr || first.from_last(0) == 1 || first.from_last(0) == use.Dk;
  }
}

const char* rule_of(const Score& score) {
  switch (score.kind) {
    case Score::Kind::bilinear:
      return "M must be [Dq, Dk] or [H, Dq, Dk]";
    case Score::Kind::additive:
      return "Wq must be [E, Dq], Wk [E, Dk] and w [E], any of them with a leading H";
    default:
      return "sigma must be [D], [1], [H, D] or [H, 1]";
  }
}

// What the letters of the rule stand for.
std::string letters(const Score& score, const ScoreUse& use) {
  const char* width = score.is_kernel() ? "D = " : "Dk = ";
  if (!use.queries) return message(width, use.Dk, " and H is a multiple of Hk = ", use.Hk);
  const std::string queries = score.is_kernel() ? "" : message("Dq = ", use.queries->Dq, ", ");
  return message(queries, width, use.Dk, " and H = ", use.queries->H);
}

[[noreturn]] void refuse_shapes(const Score& score, const Parameters& parameters, const ScoreUse& use) {
  std::string given;
  for (const Parameter& parameter : parameters) {
    if (parameter.view == nullptr) continue;
    given += message(parameter.name, " ", *parameter.view ? parameter.view->shape().text() : "absent", ", ");
  }
  throw ShapeError(message(use.operation, ": ", name_of(score.kind), ": ", rule_of(score), ", where ",
                           letters(score, use), ": ", given, use.shapes()));
}

// A dense copy with the heads in front.
Tensor with_heads(const Parameter& parameter, Dtype compute) {
  const View& view = *parameter.view;
  if (parameter.has_heads()) return Tensor::copy_of(view, compute);
  Strides strides = {};
  std::int64_t extents[3] = {1, 1, 1};
  for (int axis = 0; axis < parameter.rank; ++axis) {
    extents[axis + 1] = view.extent(axis);
    strides[static_cast<std::size_t>(axis) + 1] = view.stride(axis);
  }
  const Shape shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(parameter.rank + 1)));
  return Tensor::copy_of(View(view.data(), view.dtype(), shape, strides), compute);
}

void set_bandwidths(const Score& score, const Parameter& sigma, Dtype compute, const ScoreUse& use,
                    ScoreParameters& to) {
  Tensor inverses =
      sigma.view == nullptr ? Tensor::copy_of(View(&score.bandwidth, {1, 1})) : with_heads(sigma, Dtype::float64);
  Tensor squares = inverses.clone();
  to.by_coordinate = inverses.shape()[1] != 1;
  // Beyond these the inverse of the square is 0 or infinite in the dtype of the computation.
  const double least = compute == Dtype::float64 ? 1e-150 : 1e-18, largest = 1 / least;
  for (double& value : inverses.values<double>()) {
    if (!(value >= least && value <= largest)) {
      throw OptionError(message(use.operation, ": ", name_of(score.kind),
                                ": sigma, the bandwidth, must be positive and finite, from ", least, " to ", largest,
                                ", not ", value));
    }
    value = 1 / value;
  }
  for (double& value : squares.values<double>()) value = 1 / (value * value);
  to.inverse_bandwidths = Tensor::copy_of(inverses, compute);
  to.inverse_squares = Tensor::copy_of(squares, compute);
}

}  // namespace

std::string_view name_of(Score::Kind kind) {
  switch (kind) {
    case Score::Kind::dot:
      return "dot";
    case Score::Kind::scaled_dot:
      return "scaled_dot";
    case Score::Kind::cosine:
      return "cosine";
    case Score::Kind::bilinear:
      return "bilinear";
    case Score::Kind::additive:
      return "additive";
    case Score::Kind::gaussian:
      return "gaussian";
    case Score::Kind::laplace:
      return "laplace";
    case Score::Kind::boxcar:
      return "boxcar";
    case Score::Kind::triangular:
      return "triangular";
    case Score::Kind::epanechnikov:
      return "epanechnikov";
    case Score::Kind::constant:
      return "constant";
    case Score::Kind::yours:
      return "score_by";
  }
  return "unknown";
}

std::int64_t ScoreParameters::bytes() const {
  std::int64_t bytes = 0;
  for (const Tensor* tensor : {&matrix, &query_weights, &key_weights, &hidden, &inverse_bandwidths, &inverse_squares}) {
    bytes += tensor->elements() * static_cast<std::int64_t>(size_of(tensor->dtype()));
  }
  return bytes;
}

void check_parameters(const Score& score, Dtype compute, const ScoreUse& use) {
  const Parameters parameters = parameters_of(score);
  for (const Parameter& parameter : parameters) {
    if (parameter.view == nullptr) continue;
    if (!*parameter.view) refuse_shapes(score, parameters, use);
    if (!is_floating(parameter.view->dtype())) {
      throw DtypeError(message(use.operation, ": ", name_of(score.kind), ": ", parameter.name,
                               " must be floating, not ", name_of(parameter.view->dtype())));
    }
  }
  if (!ranks_and_heads_fit(parameters, use) || !widths_fit(score, parameters, use)) {
    refuse_shapes(score, parameters, use);
  }
  const bool doubles = compute == Dtype::float64;
  if (score.kind == Score::Kind::yours && (doubles ? score.call_double == nullptr : score.call_float == nullptr)) {
    throw OptionError(message(use.operation, ": the function given to score_by does not take ScoreTile<",
                              doubles ? "double" : "float", ">, and the computation is in ", name_of(compute)));
  }
}

ScoreParameters resolve_parameters(const Score& score, Dtype compute, const ScoreUse& use) {
  check_parameters(score, compute, use);
  const Parameters parameters = parameters_of(score);
  ScoreParameters to;
  for (const Parameter& parameter : parameters) {
    if (parameter.view != nullptr && parameter.has_heads()) to.heads = parameter.view->extent(0);
  }
  if (score.kind == Score::Kind::bilinear) to.matrix = with_heads(parameters[0], compute);
  if (score.kind == Score::Kind::additive) {
    to.query_weights = with_heads(parameters[0], compute);
    to.key_weights = with_heads(parameters[1], compute);
    to.hidden = with_heads(parameters[2], compute);
  }
  if (score.is_kernel() && score.kind != Score::Kind::constant) {
    set_bandwidths(score, parameters[0], compute, use, to);
  }
  return to;
}

}  // namespace qkv
