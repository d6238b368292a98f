// attention/gradient_forms.cpp: derivatives of what scores make of queries and keys.
#include "attention/gradient_forms.h"

#include <algorithm>
#include <cmath>

#include <qkv/gemm.h>

#include "attention/centre.h"
#include "attention/form_rows.h"
#include "attention/load.h"
#include "attention/visible.h"
#include "base/parallel.h"

namespace qkv {
namespace {

// Rows [T, width] of a head as T, copied only where they have to be.
template <class T>
class HeadRows {
 public:
  HeadRows(const View& view, std::int64_t b, std::int64_t h) {
    const auto* first = static_cast<const std::byte*>(view.data());
    const std::int64_t at = b * view.stride(0) + h * view.stride(1);
    view_ = View(first + at * static_cast<std::int64_t>(size_of(view.dtype())), view.dtype(),
                 Shape{view.extent(2), view.extent(3)}, Strides{view.stride(2), view.stride(3)});
    if (view.dtype() == dtype_of<T> && view.stride(3) == 1) return;
    copy_ = Tensor::copy_of(view_, dtype_of<T>);
    view_ = copy_;
  }
  operator View() const { return view_; }
  const T* operator[](std::int64_t i) const { return view_.as<T>() + i * view_.stride(0); }

 private:
  Tensor copy_;
  View view_;
};

template <class T>
MutableView head_of(const MutableView& view, std::int64_t b, std::int64_t h) {
  return MutableView(view.as<T>() + b * view.stride(0) + h * view.stride(1), Shape{view.extent(2), view.extent(3)},
                     Strides{view.stride(2), view.stride(3)});
}

template <class T>
void prepare_distances(const Problem& p, Scoring& scoring, ScoreWay& way) {
  const VisibleRuns runs = visible_runs(p);
  const Tensor centres = some_keys<T>(p, runs);
  scoring.centred_queries = about_centre<T>(p.q, centres, p.group, nullptr);
  scoring.centred_keys = about_centre<T>(p.k, centres, 1, &runs);
  way.q = scoring.centred_queries;
  way.k = scoring.centred_keys;
  way.product_width = p.D + 1;
}

// Adds the gradient of a parameter of head h: [heads or 1, ...].
template <class T>
T* parameter_of(Tensor& gradient, std::int64_t heads, std::int64_t h) {
  return gradient.view().as<T>() + (heads == 1 ? 0 : h * (gradient.elements() / heads));
}

// All rows of [B, heads, T, width] as one matrix, where they are evenly apart.
template <class AnyView>
AnyView as_matrix(const AnyView& x) {
  std::int64_t rows = 1, apart = x.extent(3);
  for (int axis = 2; axis >= 0; --axis) {
    if (x.extent(axis) == 1) continue;
    if (rows == 1) apart = x.stride(axis);
    if (x.stride(axis) != rows * apart) return {};
    rows *= x.extent(axis);
  }
  return AnyView(x.data(), x.dtype(), Shape{rows, x.extent(3)}, Strides{apart, x.stride(3)});
}

// The rows of [B, heads, T, width] that have a gradient in [B heads T, E], as one matrix. The others may be rows that
// must not be read, and are zeros.
template <class T>
class UsedRows {
 public:
  UsedRows(const View& x, const View& gradients) {
    const auto unused = [&](std::int64_t i) {
      const T* gradient = gradients.as<T>() + i * gradients.stride(0);
      return std::all_of(gradient, gradient + gradients.extent(1), [](T value) { return value == T(0); });
    };
    bool all = true;
    for (std::int64_t i = 0; i < gradients.extent(0); ++i) all &= !unused(i);
    if (all && x.dtype() == dtype_of<T> && x.stride(3) == 1) view_ = as_matrix(x);
    if (view_) return;
    copy_ = Tensor(Shape{gradients.extent(0), x.extent(3)}, dtype_of<T>);
    view_ = copy_;
    for (std::int64_t i = 0; i < gradients.extent(0); ++i) {
      const std::int64_t row = i % x.extent(2), head = i / x.extent(2);
      const RowOf at{head / x.extent(1), head % x.extent(1), row};
      if (!unused(i)) load_row(x, place(x, at), x.stride(3), x.extent(3), copy_.view().as<T>() + i * x.extent(3));
    }
  }
  operator View() const { return view_; }

 private:
  Tensor copy_;
  View view_;
};

// x' = W x: adds W^T dx' to dx, and dx'^T x to dW.
template <class T>
void project_rows_back(const View& x, const View& dx_made, const View& W, const MutableView& dx, const MutableView& dW,
                       int threads) {
  const View gradients = as_matrix(dx_made);
  if (dW) gemm(gradients.swapped(0, 1), UsedRows<T>(x, gradients), dW, {.accumulate = true, .threads = threads});
  if (!dx) return;
  if (const MutableView rows = as_matrix(dx)) {
    return gemm(gradients, W, rows, {.accumulate = true, .threads = threads});
  }
  for (std::int64_t i = 0; i < dx.extent(0) * dx.extent(1); ++i) {
    const std::int64_t b = i / dx.extent(1), h = i % dx.extent(1);
    gemm(HeadRows<T>(dx_made, b, h), W, head_of<T>(dx, b, h), {.accumulate = true, .threads = threads});
  }
}

// For a W that heads share or one for each; dx' is dense, and several of its heads may be made of one of x.
template <class T>
void project_back(const View& x, const View& dx_made, const Tensor& W, const MutableView& dx, Tensor* dW, int threads) {
  const std::int64_t heads = dx_made.extent(1), group = heads / std::max<std::int64_t>(x.extent(1), 1);
  const auto gradient_of = [&](std::int64_t h) {
    if (dW == nullptr) return MutableView();
    return MutableView(parameter_of<T>(*dW, W.shape()[0], h), Shape{W.shape()[1], W.shape()[2]});
  };
  if (W.shape()[0] == 1 && group == 1) {
    return project_rows_back<T>(x, dx_made, of_head(W, 0), dx, gradient_of(0), threads);
  }
  const auto one = [](const auto& view, std::int64_t b, std::int64_t h) { return view.slice(0, b, 1).slice(1, h, 1); };
  for (std::int64_t i = 0; i < dx_made.extent(0) * heads; ++i) {
    const std::int64_t b = i / heads, h = i % heads;
    project_rows_back<T>(one(x, b, h / group), one(dx_made, b, h), of_head(W, h),
                         dx ? one(dx, b, h / group) : MutableView(), gradient_of(h), threads);
  }
}

template <class T>
class Forms {
 public:
  explicit Forms(const ProductsToFinish& products)
      : p_(products.problem),
        scoring_(products.scoring),
        dq_(products.dq_made),
        dk_(products.dk_made),
        to_dq_(products.dq),
        to_dk_(products.dk),
        wanted_(products.wanted),
        to_(products.to),
        key_group_(dk_ ? p_.H / std::max<std::int64_t>(dk_.extent(1), 1) : 1) {}

  // dscale = sum q' . dq', and the rest is for the score as it was scaled.
  void scale() {
    const double scale = scoring_.usual.scale;
    if (wanted_.scale) {
      double sum = 0;
      for_each_head([&](std::int64_t b, std::int64_t h) {
        const HeadRows<T> q(scoring_.usual.q, b, h);
        const MutableView dq = head_of<T>(dq_, b, h);
        for (std::int64_t i = 0; i < p_.Tq; ++i) {
          for (std::int64_t c = 0; c < scoring_.usual.width; ++c) sum += product(q[i][c], at(dq, i, c));
        }
      });
      to_.dscale.view().as<T>()[0] = static_cast<T>(sum);
    }
    if (scale == 1) return;
    multiply(dq_, scale);
    multiply(dk_, scale);
  }

  void as_they_are() {
    copy_rows(dq_, dq());
    copy_rows(dk_, dk());
  }

  // x' = x / |x|: dx = (dx' - x' (x' . dx')) / |x|
  void cosine() {
    normalized(p_.q, scoring_.usual.q, dq_, dq());
    normalized(p_.k, scoring_.usual.k, dk_, dk());
  }

  // q' = M^T q: dq = M dq', dM = sum q dq'^T
  void bilinear() {
    const Tensor& M = scoring_.parameters->matrix;
    const std::int64_t heads = M.shape()[0];
    for_each_head([&](std::int64_t b, std::int64_t h) {
      const MutableView dq_made = head_of<T>(dq_, b, h);
      if (dq()) {
        gemm(dq_made, of_head(M, h).swapped(0, 1), head_of<T>(dq(), b, h), {.accumulate = true, .threads = p_.threads});
      }
      if (!wanted_.score) return;
      const HeadRows<T> q(p_.q, b, h);
      const MutableView to(parameter_of<T>(to_.dmatrix, heads, h), Shape{p_.D, p_.Dk});
      gemm(View(q).swapped(0, 1), dq_made, to, {.accumulate = true, .threads = p_.threads});
    });
    copy_rows(dk_, dk());
  }

  // a = Wq q, b = Wk k: dq = Wq^T da, dWq = sum da q^T, and for keys alike.
  void additive(const std::vector<PairSums>& sums, double factor) {
    const ScoreParameters& parameters = *scoring_.parameters;
    project_back<T>(p_.q, dq_, parameters.query_weights, dq(), wanted_.score ? &to_.dquery_weights : nullptr,
                    p_.threads);
    if (dk_) {
      project_keys_back({p_.k, dk_, parameters, dk(), wanted_.score ? &to_.dkey_weights : nullptr, p_.threads});
    }
    if (!wanted_.score || sums.empty()) return;
    const std::int64_t heads = parameters.hidden.shape()[0], E = parameters.hidden_width();
    std::vector<double> total(static_cast<std::size_t>(heads * E), 0.0);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t h = heads == 1 ? 0 : i % static_cast<std::size_t>(p_.H);
      for (std::size_t e = 0; e < sums[i].hidden.size(); ++e) {
        total[h * static_cast<std::size_t>(E) + e] += sums[i].hidden[e] * factor;
      }
    }
    for (std::size_t i = 0; i < total.size(); ++i) to_.dhidden_weights.view().as<T>()[i] = static_cast<T>(total[i]);
  }

  // See KeyForm for q' and k', and prepare_products for the distances' rows, h standing for d score / d u^2:
  //   d/dx of x' = [x s, -|x s|^2 / 2, 1]: s dx' - s (x s) dnorm
  //   d/dx of h u^2, u^2 = sum_c f_c (q - k)_c^2:  2 f_c (q_c sum_j h - sum_j h k_c)
  // Of one sigma, h u^2 is summed pair by pair: the sums over coordinates would cancel.
  void distances(const std::vector<PairSums>& sums, double factor) {
    const ScoreParameters& parameters = *scoring_.parameters;
    const std::int64_t width = parameters.by_coordinate ? p_.D : 1, heads = parameters.inverse_squares.shape()[0];
    std::vector<double> df(static_cast<std::size_t>(heads * width), 0.0);  // of f = 1 / sigma^2
    for_each_head([&](std::int64_t b, std::int64_t h) {
      const bool gaussian = scoring_.way(b, h, p_.H).kind == ScoreWay::Kind::dot;
      double* of_head = df.data() + (heads == 1 ? 0 : h * width);
      gaussian ? queries_of_gaussian(b, h, of_head) : queries_by_distance(b, h, of_head);
      if (gaussian || parameters.by_coordinate || sums.empty()) return;
      const double f = static_cast<double>(factor_of(h, 0, parameters.inverse_squares));
      of_head[0] += sums[static_cast<std::size_t>(b * p_.H + h)].square * factor / f;
    });
    for (std::int64_t b = 0; b < p_.B; ++b) {
      for (std::int64_t h = 0; h < dk_.extent(1); ++h) {
        const std::int64_t query_head = h * key_group_;
        const bool gaussian = scoring_.way(b, query_head, p_.H).kind == ScoreWay::Kind::dot;
        double* of_head = df.data() + (heads == 1 ? 0 : query_head * width);
        gaussian ? keys_of_gaussian(b, h, of_head) : keys_by_distance(b, h, of_head);
      }
    }
    if (!wanted_.score) return;
    // d/dsigma = -2 / sigma^3 d/df
    const View inverse = parameters.inverse_bandwidths;
    for (std::size_t i = 0; i < df.size(); ++i) {
      const auto s = static_cast<double>(inverse.as<T>()[i]);
      to_.dbandwidths.view().as<T>()[i] = static_cast<T>(-2 * s * s * s * df[i]);
    }
  }

 private:
  static double product(T a, T b) { return static_cast<double>(a) * static_cast<double>(b); }
  static T& at(const MutableView& rows, std::int64_t i, std::int64_t c) {
    return rows.as<T>()[i * rows.stride(0) + c * rows.stride(1)];
  }
  const MutableView& dq() const { return to_dq_; }
  const MutableView& dk() const { return to_dk_; }

  template <class Each>
  void for_each_head(Each each) {
    for (std::int64_t b = 0; b < p_.B; ++b) {
      for (std::int64_t h = 0; h < p_.H; ++h) each(b, h);
    }
  }

  void multiply(const MutableView& rows, double factor) const {
    for (std::int64_t i = 0; i < rows.elements(); ++i) rows.as<T>()[i] *= static_cast<T>(factor);
  }

  // Heads of `from` that share one of `to` are added up.
  void copy_rows(const MutableView& from, const MutableView& to) const {
    if (!to) return;
    const std::int64_t group = from.extent(1) / std::max<std::int64_t>(to.extent(1), 1);
    for (std::int64_t b = 0; b < from.extent(0); ++b) {
      for (std::int64_t h = 0; h < from.extent(1); ++h) {
        const MutableView rows = head_of<T>(from, b, h), target = head_of<T>(to, b, h / group);
        for (std::int64_t i = 0; i < target.extent(0); ++i) {
          for (std::int64_t c = 0; c < target.extent(1); ++c) at(target, i, c) += at(rows, i, c);
        }
      }
    }
  }

  void normalized(const View& x, const View& made, const MutableView& from, const MutableView& to) const {
    if (!to) return;
    for (std::int64_t i = 0; i < to.extent(0) * to.extent(1); ++i) {
      const std::int64_t b = i / to.extent(1), h = i % to.extent(1), D = to.extent(3);
      const HeadRows<T> rows(x, b, h), unit(made, b, h);
      const MutableView gradients = head_of<T>(from, b, h), target = head_of<T>(to, b, h);
      for (std::int64_t j = 0; j < to.extent(2); ++j) {
        const T* direction = unit[j];
        double along = 0;
        bool any = false;
        for (std::int64_t c = 0; c < D; ++c) {
          along += product(direction[c], at(gradients, j, c));
          any |= at(gradients, j, c) != T(0);
        }
        if (!any) continue;  // perhaps a key that must not be read
        long double square = 0;
        for (std::int64_t c = 0; c < D; ++c) {
          square += static_cast<long double>(rows[j][c]) * static_cast<long double>(rows[j][c]);
        }
        if (square == 0) continue;
        const auto inverse = static_cast<double>(1 / std::sqrt(square));
        for (std::int64_t c = 0; c < D; ++c) {
          const double across = static_cast<double>(at(gradients, j, c)) - static_cast<double>(direction[c]) * along;
          at(target, j, c) += static_cast<T>(across * inverse);
        }
      }
    }
  }

  T factor_of(std::int64_t h, std::int64_t c, const Tensor& parameter) const {
    return of_head(parameter, h).template as<T>()[scoring_.parameters->by_coordinate ? c : 0];
  }

  // q' = [x, 1, -|x|^2 / 2] with x = (q - c) s, where sigma differs by coordinate; else f times that, f = 1 / sigma^2.
  void queries_of_gaussian(std::int64_t b, std::int64_t h, double* df) const {
    const bool by_coordinate = scoring_.parameters->by_coordinate;
    const HeadRows<T> made(scoring_.usual.q, b, h);
    const MutableView from = head_of<T>(dq_, b, h);
    const std::int64_t D = p_.D;
    for (std::int64_t i = 0; i < p_.Tq; ++i) {
      const T* x = made[i];
      const T norm = at(from, i, D + 1);
      for (std::int64_t c = 0; c < D; ++c) {
        const T f = factor_of(h, 0, scoring_.parameters->inverse_squares);
        const T own = by_coordinate ? x[c] : x[c] / f;
        const T through = at(from, i, c) - own * norm;
        const T s = by_coordinate ? factor_of(h, c, scoring_.parameters->inverse_bandwidths) : f;
        if (dq()) at(head_of<T>(dq(), b, h), i, c) += s * through;
        // d/ds (x = y s) is y = x / s, and ds/df = 1 / (2 s).
        if (by_coordinate) df[c] += product(through, own) / (2 * static_cast<double>(s) * static_cast<double>(s));
        if (!by_coordinate) df[0] += product(at(from, i, c), own);
      }
      if (by_coordinate) continue;
      const T f = x[D];
      df[0] += static_cast<double>(at(from, i, D)) + product(norm, x[D + 1]) / static_cast<double>(f);
    }
  }

  void keys_of_gaussian(std::int64_t b, std::int64_t h, double* df) const {
    const bool by_coordinate = scoring_.parameters->by_coordinate;
    const HeadRows<T> made(scoring_.usual.k, b, h / (dk_.extent(1) / scoring_.usual.k.extent(1)));
    const MutableView from = head_of<T>(dk_, b, h);
    const std::int64_t D = p_.D, query_head = h * key_group_, key_head = h / (dk_.extent(1) / p_.Hk);
    for (std::int64_t j = 0; j < p_.Tk; ++j) {
      const T* x = made[j];
      const T norm = at(from, j, D);
      for (std::int64_t c = 0; c < D; ++c) {
        const T through = at(from, j, c) - x[c] * norm;
        const T s = by_coordinate ? factor_of(query_head, c, scoring_.parameters->inverse_bandwidths) : T(1);
        if (dk()) at(head_of<T>(dk(), b, key_head), j, c) += s * through;
        if (by_coordinate) df[c] += product(through, x[c]) / (2 * static_cast<double>(s) * static_cast<double>(s));
      }
    }
  }

  void queries_by_distance(std::int64_t b, std::int64_t h, double* df) const {
    const bool by_coordinate = scoring_.parameters->by_coordinate;
    const HeadRows<T> made(scoring_.way(b, h, p_.H).q, b, h);
    const MutableView from = head_of<T>(dq_, b, h);
    for (std::int64_t i = 0; i < p_.Tq; ++i) {
      const T sum = at(from, i, p_.D);
      for (std::int64_t c = 0; c < p_.D; ++c) {
        const T f = factor_of(h, c, scoring_.parameters->inverse_squares), x = made[i][c];
        if (dq()) at(head_of<T>(dq(), b, h), i, c) += 2 * f * (x * sum - at(from, i, c));
        if (by_coordinate) df[c] += product(x, x) * static_cast<double>(sum) - 2 * product(x, at(from, i, c));
      }
    }
  }

  void keys_by_distance(std::int64_t b, std::int64_t h, double* df) const {
    const bool by_coordinate = scoring_.parameters->by_coordinate;
    const std::int64_t query_head = h * key_group_, key_head = h / (dk_.extent(1) / p_.Hk);
    const HeadRows<T> made(scoring_.way(b, query_head, p_.H).k, b, key_head);
    const MutableView from = head_of<T>(dk_, b, h);
    for (std::int64_t j = 0; j < p_.Tk; ++j) {
      const T sum = at(from, j, p_.D);
      if (sum == T(0) && made[j][p_.D] == T(0)) continue;  // nobody sees it
      for (std::int64_t c = 0; c < p_.D; ++c) {
        const T f = factor_of(query_head, c, scoring_.parameters->inverse_squares), x = made[j][c];
        if (dk()) at(head_of<T>(dk(), b, key_head), j, c) += 2 * f * (x * sum - at(from, j, c));
        if (by_coordinate) df[c] += product(x, x) * static_cast<double>(sum);
      }
    }
  }

  const Problem& p_;
  const Scoring& scoring_;
  MutableView dq_, dk_, to_dq_, to_dk_;
  const AttendWanted& wanted_;
  AttendGradients& to_;
  std::int64_t key_group_;  // query heads per head of dk
};

template <class T>
void finish_as(const ProductsToFinish& products) {
  Forms<T> forms(products);
  switch (products.problem.score.kind) {
    case Score::Kind::dot:
    case Score::Kind::scaled_dot:
      forms.scale();
      return forms.as_they_are();
    case Score::Kind::cosine:
      forms.scale();
      return forms.cosine();
    case Score::Kind::bilinear:
      forms.scale();
      return forms.bilinear();
    case Score::Kind::additive:
      return forms.additive(products.sums, products.factor);
    case Score::Kind::yours:
      return forms.as_they_are();
    case Score::Kind::constant:
      return;
    default:
      return forms.distances(products.sums, products.factor);
  }
}

}  // namespace

void prepare_products(const Problem& problem, Scoring& scoring) {
  for (ScoreWay* way : {&scoring.usual, &scoring.exact}) {
    way->product_width = way->width;
    if (way->kind != ScoreWay::Kind::distance) continue;
    problem.compute == Dtype::float64 ? prepare_distances<double>(problem, scoring, *way)
                                      : prepare_distances<float>(problem, scoring, *way);
  }
}

std::int64_t gradient_key_heads(const Problem& problem, const Scoring& scoring) {
  const bool shared = scoring.usual.key_group == problem.group && !scoring.heads_differ();
  return shared ? problem.Hk : problem.H;
}

bool takes_queries_as_they_are(const Score& score) {
  return score.kind == Score::Kind::dot || score.kind == Score::Kind::scaled_dot;
}

void project_keys_back(const ProjectedKeys& keys) {
  const auto project = keys.dprojections.dtype() == Dtype::float64 ? project_back<double> : project_back<float>;
  project(keys.k, keys.dprojections, keys.parameters.key_weights, keys.dk, keys.dkey_weights, keys.threads);
}

void finish_gradients(const ProductsToFinish& products) {
  products.problem.compute == Dtype::float64 ? finish_as<double>(products) : finish_as<float>(products);
}

}  // namespace qkv
