// attention/tangent_forms.cpp: the derivatives of what scores make of queries and keys, forwards.
#include "attention/tangent_forms.h"

#include <algorithm>
#include <cmath>

#include <qkv/gemm.h>

#include "attention/centre.h"
#include "attention/load.h"

namespace qkv {
namespace {

template <class T>
T* rows_of(Tensor& tensor) {
  return tensor.view().as<T>();
}

// Rows times a matrix, for each head its own or one for all: [B, heads, T, width] to [B, to_heads, T, columns].
template <class T>
Tensor projected(const Tensor& x, const Tensor& matrix, bool transposed, std::int64_t to_heads) {
  const std::int64_t B = x.shape()[0], heads = x.shape()[1], count = x.shape()[2], width = x.shape()[3];
  const View first = of_head(matrix, 0);
  const std::int64_t columns = first.extent(transposed ? 0 : 1);
  Tensor to(Shape{B, to_heads, count, columns}, dtype_of<T>);
  for (std::int64_t i = 0; i < B * to_heads; ++i) {
    const std::int64_t from = i / to_heads * heads + i % to_heads / (to_heads / heads);
    const View weights = of_head(matrix, i % to_heads);
    gemm(View(View(x).as<T>() + from * count * width, Shape{count, width}),
         transposed ? weights.swapped(0, 1) : weights,
         MutableView(rows_of<T>(to) + i * count * columns, Shape{count, columns}));
  }
  return to;
}

// x' = x / |x| and its rate (x. - x' (x' . x.)) / |x|, in place. A row of zeros has none.
template <class T>
void normalize(Tensor& x, Tensor& rates) {
  const std::int64_t width = x.shape()[3];
  for (std::int64_t i = 0; width > 0 && i < x.elements() / width; ++i) {
    T *row = rows_of<T>(x) + i * width, *rate = rows_of<T>(rates) + i * width;
    long double square = 0;
    for (std::int64_t c = 0; c < width; ++c)
      square += static_cast<long double>(row[c]) * static_cast<long double>(row[c]);
    const auto inverse = square == 0 ? 0.0 : static_cast<double>(1 / std::sqrt(square));
    double along = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      row[c] = static_cast<T>(static_cast<double>(row[c]) * inverse);
      along += static_cast<double>(row[c]) * static_cast<double>(rate[c]);
    }
    for (std::int64_t c = 0; c < width; ++c) {
      rate[c] = static_cast<T>((static_cast<double>(rate[c]) - static_cast<double>(row[c]) * along) * inverse);
    }
  }
}

template <class T>
Tensor side_by_side(const Tensor& a, const Tensor& b, double scale) {
  const std::int64_t width = a.shape()[3], rows = width == 0 ? 0 : a.elements() / width;
  Tensor to(Shape{a.shape()[0], a.shape()[1], a.shape()[2], 2 * width}, dtype_of<T>);
  for (std::int64_t i = 0; i < rows * width; ++i) {
    T* row = rows_of<T>(to) + i / width * 2 * width + i % width;
    row[0] = View(a).as<T>()[i] * static_cast<T>(scale);
    row[width] = View(b).as<T>()[i] * static_cast<T>(scale);
  }
  return to;
}

// [f x., f x, -x f x., 1] for queries x = q - c, and with `keys` [x, x., 1, -x f x.] for keys; x comes as [x, 1], all
// zeros where nobody sees it.
template <class T>
Tensor gaussian_rows(const Tensor& centred, const Tensor& rates, const ScoreParameters& parameters, std::int64_t heads,
                     bool keys) {
  const std::int64_t B = rates.shape()[0], own = rates.shape()[1], count = rates.shape()[2], D = rates.shape()[3];
  Tensor to(Shape{B, heads, count, 2 * D + 2}, dtype_of<T>);
  for (std::int64_t i = 0; i < B * heads * count; ++i) {
    const std::int64_t h = i / count % heads, from = (i / count / heads * own + h / (heads / own)) * count + i % count;
    const T* f = of_head(parameters.inverse_squares, h).template as<T>();
    const T *x = View(centred).as<T>() + from * (D + 1), *rate = View(rates).as<T>() + from * D;
    T* row = rows_of<T>(to) + i * (2 * D + 2);
    double norm = 0;
    for (std::int64_t c = 0; c < D; ++c) {
      const T factor = f[parameters.by_coordinate ? c : 0];
      norm -= static_cast<double>(x[c]) * static_cast<double>(factor) * static_cast<double>(rate[c]);
      row[c] = keys ? x[c] : factor * rate[c];
      row[D + c] = keys ? rate[c] : factor * x[c];
    }
    row[2 * D] = keys ? x[D] : static_cast<T>(norm);
    row[2 * D + 1] = keys ? static_cast<T>(norm) : T(1);
  }
  return to;
}

template <class T>
TangentForms forms_of(const Problem& p, const Scoring& scoring, const View& dq, const View& dk,
                      const VisibleRuns& runs) {
  const ScoreParameters& parameters = *scoring.parameters;
  const Shape of_queries{p.B, p.H, p.Tq, p.D}, of_keys{p.B, p.Hk, p.Tk, p.Dk};
  Tensor q_rates = seen_rows(dq, of_queries, p.compute, nullptr), k_rates = seen_rows(dk, of_keys, p.compute, &runs);
  const std::int64_t key_heads = scoring.heads_differ() ? p.H : p.Hk;
  if (p.score.kind == Score::Kind::additive) {
    return {projected<T>(q_rates, parameters.query_weights, true, p.H),
            projected<T>(k_rates, parameters.key_weights, true, key_heads)};
  }
  if (p.score.kind == Score::Kind::gaussian) {
    const Tensor centres = some_keys<T>(p, runs);
    return {gaussian_rows<T>(about_centre<T>(p.q, centres, p.group, nullptr), q_rates, parameters, p.H, false),
            gaussian_rows<T>(about_centre<T>(p.k, centres, 1, &runs), k_rates, parameters, key_heads, true)};
  }
  Tensor q = seen_rows(p.q, of_queries, p.compute, nullptr), k = seen_rows(p.k, of_keys, p.compute, &runs);
  if (p.score.kind == Score::Kind::bilinear) {
    q = projected<T>(q, parameters.matrix, false, p.H);
    q_rates = projected<T>(q_rates, parameters.matrix, false, p.H);
  }
  if (p.score.kind == Score::Kind::cosine) {
    normalize<T>(q, q_rates);
    normalize<T>(k, k_rates);
  }
  return {side_by_side<T>(q_rates, q, scoring.usual.scale), side_by_side<T>(k, k_rates, 1)};
}

}  // namespace

Tensor seen_rows(const View& view, const Shape& shape, Dtype dtype, const VisibleRuns* runs) {
  Tensor to(shape, dtype);
  if (!view) return to;
  const std::int64_t heads = shape[1], count = shape[2], width = shape[3];
  for_each_row(shape[0] * heads, count, runs, [&](std::int64_t i, std::int64_t j) {
    const std::int64_t from = place(view, {i / heads, i % heads, j}), at = (i * count + j) * width;
    if (dtype == Dtype::float64) {
      load_row(view, from, view.stride(3), width, to.view().as<double>() + at);
    } else {
      load_row(view, from, view.stride(3), width, to.view().as<float>() + at);
    }
  });
  return to;
}

TangentForms make_tangent_forms(const Problem& problem, const Scoring& scoring, const View& dq, const View& dk,
                                const VisibleRuns& runs) {
  if (problem.score.kind == Score::Kind::constant || (!dq && !dk)) return {};
  return problem.compute == Dtype::float64 ? forms_of<double>(problem, scoring, dq, dk, runs)
                                           : forms_of<float>(problem, scoring, dq, dk, runs);
}

}  // namespace qkv
