// attention/score_parameters.cpp: the checks of what a score carries.
#include "attention/score_parameters.h"

#include <cmath>
#include <span>
#include <string>

#include <qkv/error.h>

#include "attention/elements.h"
#include "base/message.h"

namespace qkv {
namespace {

struct Resolver {
  Dtype compute;
  const char* operation;
  ScoreParameters& to;

  // A dense copy with the heads in front. `own` is the rank without them.
  Tensor with_heads(const View& view, int own, const char* name, const char* shape) {
    if (!view) throw ShapeError(message(operation, ": ", name, " was given no array"));
    if (!is_floating(view.dtype())) {
      throw DtypeError(message(operation, ": ", name, " must be floating, not ", name_of(view.dtype())));
    }
    if (view.rank() != own && view.rank() != own + 1) {
      throw ShapeError(message(operation, ": ", name, " of shape ", view.shape().text(), " must be ", shape,
                               ", or the same with a leading H"));
    }
    if (view.rank() == own + 1) {
      merge_heads(view.extent(0), name);
      return Tensor::copy_of(view, compute);
    }
    Strides strides = {};
    std::int64_t extents[3] = {1, 1, 1};
    for (int axis = 0; axis < own; ++axis) {
      extents[axis + 1] = view.extent(axis);
      strides[static_cast<std::size_t>(axis + 1)] = view.stride(axis);
    }
    return Tensor::copy_of(
        View(view.data(), view.dtype(),
             Shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(own + 1))), strides),
        compute);
  }

  void merge_heads(std::int64_t heads, const char* name) {
    if (heads == 0 || (to.heads != 1 && heads != 1 && heads != to.heads)) {
      throw ShapeError(
          message(operation, ": ", name, " has ", heads, " heads, where the score's other parameters have ", to.heads));
    }
    if (heads != 1) to.heads = heads;
  }

  void bandwidths(const Score& score, std::int64_t Dk) {
    const auto refuse = [&](double sigma) {
      throw OptionError(message(operation, ": a bandwidth must be positive and finite, not ", sigma));
    };
    const View given = score.bandwidths ? score.bandwidths : View(&score.bandwidth, {1});
    const Shape shape = with_heads(given, 1, "bandwidth", "[D] or [1]").shape();
    if (shape[1] != 1 && shape[1] != Dk) {
      throw ShapeError(message(operation, ": bandwidth of shape ", given.shape().text(), " must end in 1 or D = ", Dk));
    }
    to.by_coordinate = shape[1] != 1;
    Tensor inverses = Tensor::copy_of(given, Dtype::float64), squares = inverses.clone();
    for (double& sigma : inverses.values<double>()) {
      if (!(sigma > 0) || !std::isfinite(sigma)) refuse(sigma);
      sigma = 1 / sigma;
    }
    for (double& sigma : squares.values<double>()) sigma = 1 / (sigma * sigma);
    to.inverse_bandwidths = Tensor::copy_of(View(inverses.values<double>(), shape), compute);
    to.inverse_squares = Tensor::copy_of(View(squares.values<double>(), shape), compute);
  }

  void additive(const Score& score, std::int64_t Dk) {
    to.query_weights = with_heads(score.query_weights, 2, "Wq", "[E, Dq]");
    to.key_weights = with_heads(score.key_weights, 2, "Wk", "[E, Dk]");
    to.hidden = with_heads(score.hidden_weights, 1, "w", "[E]");
    const std::int64_t E = to.hidden.shape()[1];
    if (to.query_weights.shape()[1] != E || to.key_weights.shape()[1] != E || to.key_weights.shape()[2] != Dk) {
      throw ShapeError(message(operation, ": additive needs Wq [E, Dq], Wk [E, Dk] and w [E] with Dk = ", Dk,
                               "; they are ", score.query_weights.shape().text(), ", ",
                               score.key_weights.shape().text(), " and ", score.hidden_weights.shape().text()));
    }
  }
};

}  // namespace

std::int64_t ScoreParameters::bytes() const {
  std::int64_t bytes = 0;
  for (const Tensor* tensor : {&matrix, &query_weights, &key_weights, &hidden, &inverse_bandwidths, &inverse_squares}) {
    bytes += tensor->elements() * static_cast<std::int64_t>(size_of(tensor->dtype()));
  }
  return bytes;
}

ScoreParameters resolve_parameters(const Score& score, std::int64_t Dk, Dtype compute, const char* operation) {
  ScoreParameters parameters;
  Resolver resolver{compute, operation, parameters};
  switch (score.kind) {
    case Score::Kind::bilinear:
      parameters.matrix = resolver.with_heads(score.matrix, 2, "M", "[Dq, Dk]");
      if (parameters.matrix.shape()[2] != Dk) {
        throw ShapeError(message(operation, ": M of shape ", score.matrix.shape().text(), " must end in Dk = ", Dk));
      }
      break;
    case Score::Kind::additive:
      resolver.additive(score, Dk);
      break;
    case Score::Kind::gaussian:
    case Score::Kind::laplace:
    case Score::Kind::boxcar:
    case Score::Kind::triangular:
    case Score::Kind::epanechnikov:
      resolver.bandwidths(score, Dk);
      break;
    case Score::Kind::yours:
      if (compute == Dtype::float64 ? score.call_double == nullptr : score.call_float == nullptr) {
        throw OptionError(message(operation, ": the function given to score_by does not take ScoreTile<",
                                  compute == Dtype::float64 ? "double" : "float", ">, and the computation is in ",
                                  name_of(compute)));
      }
      break;
    default:
      break;
  }
  return parameters;
}

void check_queries(const Score& score, const ScoreParameters& parameters, std::int64_t H, std::int64_t Dq,
                   std::int64_t Dk, const char* operation) {
  if (parameters.heads != 1 && parameters.heads != H) {
    throw ShapeError(
        message(operation, ": the score's parameters have ", parameters.heads, " heads, and the queries have ", H));
  }
  if (score.kind == Score::Kind::bilinear && parameters.matrix.shape()[1] != Dq) {
    throw ShapeError(message(operation, ": M of shape ", score.matrix.shape().text(),
                             " must be [Dq, Dk] with Dq = ", Dq, " and Dk = ", Dk));
  }
  if (score.kind == Score::Kind::additive && parameters.query_weights.shape()[2] != Dq) {
    throw ShapeError(message(operation, ": Wq of shape ", score.query_weights.shape().text(),
                             " must end in the queries' width Dq = ", Dq));
  }
}

}  // namespace qkv
