// attention/distance_gradients.cpp: gradients of scores that compare by distance, gaussian among them.
#include "attention/distance_gradients.h"

#include <algorithm>
#include <vector>

#include "attention/centre.h"
#include "attention/gradient_rows.h"
#include "attention/visible.h"

namespace qkv {
namespace {

template <class T>
class Distances {
 public:
  explicit Distances(const ProductsToFinish& products)
      : products_(products),
        p_(products.problem),
        scoring_(products.scoring),
        key_group_(p_.H / std::max<std::int64_t>(products.dk_made.extent(1), 1)) {}

  // See KeyForm for q' and k', and prepare_products for the distances' rows, h standing for d score / d u^2:
  //   d/dx of x' = [x s, -|x s|^2 / 2, 1]: s dx' - s (x s) dnorm
  //   d/dx of h u^2, u^2 = sum_c f_c (q - k)_c^2:  2 f_c (q_c sum_j h - sum_j h k_c)
  // Of one sigma, h u^2 is summed pair by pair: the sums over coordinates would cancel.
  void finish() {
    const ScoreParameters& parameters = *scoring_.parameters;
    const std::int64_t width = parameters.by_coordinate ? p_.D : 1, heads = parameters.inverse_squares.shape()[0];
    std::vector<double> df(static_cast<std::size_t>(heads * width), 0.0);  // of f = 1 / sigma^2
    for (std::int64_t i = 0; i < p_.B * p_.H; ++i) {
      const std::int64_t b = i / p_.H, h = i % p_.H;
      const bool gaussian = scoring_.way(b, h, p_.H).kind == ScoreWay::Kind::dot;
      double* of_head = df.data() + (heads == 1 ? 0 : h * width);
      gaussian ? queries_of_gaussian(b, h, of_head) : queries_by_distance(b, h, of_head);
      if (gaussian || parameters.by_coordinate || products_.sums.empty()) continue;
      const double f = static_cast<double>(factor_of(h, 0, parameters.inverse_squares));
      of_head[0] += products_.sums[static_cast<std::size_t>(i)].square * products_.factor / f;
    }
    for (std::int64_t b = 0; b < p_.B; ++b) {
      for (std::int64_t h = 0; h < products_.dk_made.extent(1); ++h) {
        const std::int64_t query_head = h * key_group_;
        const bool gaussian = scoring_.way(b, query_head, p_.H).kind == ScoreWay::Kind::dot;
        double* of_head = df.data() + (heads == 1 ? 0 : query_head * width);
        gaussian ? keys_of_gaussian(b, h, of_head) : keys_by_distance(b, h, of_head);
      }
    }
    if (!products_.wanted.score) return;
    // d/dsigma = -2 / sigma^3 d/df
    const View inverse = parameters.inverse_bandwidths;
    for (std::size_t i = 0; i < df.size(); ++i) {
      const auto s = static_cast<double>(inverse.as<T>()[i]);
      products_.to.dbandwidths.view().as<T>()[i] = static_cast<T>(-2 * s * s * s * df[i]);
    }
  }

 private:
  T factor_of(std::int64_t h, std::int64_t c, const Tensor& parameter) const {
    return of_head(parameter, h).template as<T>()[scoring_.parameters->by_coordinate ? c : 0];
  }

  // q' = [x, 1, -|x|^2 / 2] with x = (q - c) s, where sigma differs by coordinate; else f times that, f = 1 / sigma^2.
  void queries_of_gaussian(std::int64_t b, std::int64_t h, double* df) const {
    const bool by_coordinate = scoring_.parameters->by_coordinate;
    const HeadRows<T> made(scoring_.usual.q, b, h);
    const MutableView from = head_of<T>(products_.dq_made, b, h);
    const std::int64_t D = p_.D;
    for (std::int64_t i = 0; i < p_.Tq; ++i) {
      const T* x = made[i];
      const T norm = at<T>(from, i, D + 1);
      for (std::int64_t c = 0; c < D; ++c) {
        const T f = factor_of(h, 0, scoring_.parameters->inverse_squares);
        const T own = by_coordinate ? x[c] : x[c] / f;
        const T through = at<T>(from, i, c) - own * norm;
        const T s = by_coordinate ? factor_of(h, c, scoring_.parameters->inverse_bandwidths) : f;
        if (products_.dq) at<T>(head_of<T>(products_.dq, b, h), i, c) += s * through;
        // d/ds (x = y s) is y = x / s, and ds/df = 1 / (2 s).
        if (by_coordinate) df[c] += product(through, own) / (2 * static_cast<double>(s) * static_cast<double>(s));
        if (!by_coordinate) df[0] += product(at<T>(from, i, c), own);
      }
      if (by_coordinate) continue;
      const T f = x[D];
      df[0] += static_cast<double>(at<T>(from, i, D)) + product(norm, x[D + 1]) / static_cast<double>(f);
    }
  }

  void keys_of_gaussian(std::int64_t b, std::int64_t h, double* df) const {
    const bool by_coordinate = scoring_.parameters->by_coordinate;
    const HeadRows<T> made(scoring_.usual.k, b, h / (products_.dk_made.extent(1) / scoring_.usual.k.extent(1)));
    const MutableView from = head_of<T>(products_.dk_made, b, h);
    const std::int64_t D = p_.D, query_head = h * key_group_, key_head = h / (products_.dk_made.extent(1) / p_.Hk);
    for (std::int64_t j = 0; j < p_.Tk; ++j) {
      const T* x = made[j];
      const T norm = at<T>(from, j, D);
      for (std::int64_t c = 0; c < D; ++c) {
        const T through = at<T>(from, j, c) - x[c] * norm;
        const T s = by_coordinate ? factor_of(query_head, c, scoring_.parameters->inverse_bandwidths) : T(1);
        if (products_.dk) at<T>(head_of<T>(products_.dk, b, key_head), j, c) += s * through;
        if (by_coordinate) df[c] += product(through, x[c]) / (2 * static_cast<double>(s) * static_cast<double>(s));
      }
    }
  }

  void queries_by_distance(std::int64_t b, std::int64_t h, double* df) const {
    const bool by_coordinate = scoring_.parameters->by_coordinate;
    const HeadRows<T> made(scoring_.way(b, h, p_.H).q, b, h);
    const MutableView from = head_of<T>(products_.dq_made, b, h);
    for (std::int64_t i = 0; i < p_.Tq; ++i) {
      const T sum = at<T>(from, i, p_.D);
      for (std::int64_t c = 0; c < p_.D; ++c) {
        const T f = factor_of(h, c, scoring_.parameters->inverse_squares), x = made[i][c];
        if (products_.dq) at<T>(head_of<T>(products_.dq, b, h), i, c) += 2 * f * (x * sum - at<T>(from, i, c));
        if (by_coordinate) df[c] += product(x, x) * static_cast<double>(sum) - 2 * product(x, at<T>(from, i, c));
      }
    }
  }

  void keys_by_distance(std::int64_t b, std::int64_t h, double* df) const {
    const bool by_coordinate = scoring_.parameters->by_coordinate;
    const std::int64_t query_head = h * key_group_, key_head = h / (products_.dk_made.extent(1) / p_.Hk);
    const HeadRows<T> made(scoring_.way(b, query_head, p_.H).k, b, key_head);
    const MutableView from = head_of<T>(products_.dk_made, b, h);
    for (std::int64_t j = 0; j < p_.Tk; ++j) {
      const T sum = at<T>(from, j, p_.D);
      if (sum == T(0) && made[j][p_.D] == T(0)) continue;  // nobody sees it
      for (std::int64_t c = 0; c < p_.D; ++c) {
        const T f = factor_of(query_head, c, scoring_.parameters->inverse_squares), x = made[j][c];
        if (products_.dk) at<T>(head_of<T>(products_.dk, b, key_head), j, c) += 2 * f * (x * sum - at<T>(from, j, c));
        if (by_coordinate) df[c] += product(x, x) * static_cast<double>(sum);
      }
    }
  }

  const ProductsToFinish& products_;
  const Problem& p_;
  const Scoring& scoring_;
  std::int64_t key_group_;  // query heads per head of dk
};

template <class T>
void prepare(const Problem& p, Scoring& scoring, ScoreWay& way) {
  const VisibleRuns runs = visible_runs(p);
  const Tensor centres = some_keys<T>(p, runs);
  scoring.centred_queries = about_centre<T>(p.q, centres, p.group, nullptr);
  scoring.centred_keys = about_centre<T>(p.k, centres, 1, &runs);
  way.q = scoring.centred_queries;
  way.k = scoring.centred_keys;
  way.product_width = p.D + 1;
}

}  // namespace

void prepare_distances(const Problem& problem, Scoring& scoring, ScoreWay& way) {
  problem.compute == Dtype::float64 ? prepare<double>(problem, scoring, way) : prepare<float>(problem, scoring, way);
}

void finish_distances(const ProductsToFinish& products) {
  products.problem.compute == Dtype::float64 ? Distances<double>(products).finish()
                                             : Distances<float>(products).finish();
}

}  // namespace qkv
