// attention/gradient_forms.cpp: derivatives of what scores make of queries and keys.
#include "attention/gradient_forms.h"

#include <algorithm>
#include <cmath>

#include <qkv/gemm.h>

#include "attention/distance_gradients.h"
#include "attention/gradient_rows.h"
#include "attention/projection_gradients.h"

namespace qkv {
namespace {

template <class T>
class Forms {
 public:
  explicit Forms(const ProductsToFinish& products)
      : products_(products), p_(products.problem), scoring_(products.scoring) {}

  // dscale = sum q' . dq', and the rest is for the score as it was scaled.
  void scale() {
    const double scale = scoring_.usual.scale;
    if (products_.wanted.scale) {
      double sum = 0;
      for_each_head([&](std::int64_t b, std::int64_t h) {
        const HeadRows<T> q(scoring_.usual.q, b, h);
        const MutableView dq = head_of<T>(products_.dq_made, b, h);
        for (std::int64_t i = 0; i < p_.Tq; ++i) {
          for (std::int64_t c = 0; c < scoring_.usual.width; ++c) sum += product(q[i][c], at<T>(dq, i, c));
        }
      });
      products_.to.dscale.view().as<T>()[0] = static_cast<T>(sum);
    }
    if (scale == 1) return;
    multiply(products_.dq_made, scale);
    multiply(products_.dk_made, scale);
  }

  void as_they_are() {
    copy_rows(products_.dq_made, products_.dq);
    copy_rows(products_.dk_made, products_.dk);
  }

  // x' = x / |x|: dx = (dx' - x' (x' . dx')) / |x|
  void cosine() {
    normalized(p_.q, scoring_.usual.q, products_.dq_made, products_.dq);
    normalized(p_.k, scoring_.usual.k, products_.dk_made, products_.dk);
  }

  // q' = M^T q: dq = M dq', dM = sum q dq'^T
  void bilinear() {
    const Tensor& M = scoring_.parameters->matrix;
    const std::int64_t heads = M.shape()[0];
    for_each_head([&](std::int64_t b, std::int64_t h) {
      const MutableView dq_made = head_of<T>(products_.dq_made, b, h);
      if (products_.dq) {
        gemm(dq_made, of_head(M, h).swapped(0, 1), head_of<T>(products_.dq, b, h),
             {.accumulate = true, .threads = p_.threads});
      }
      if (!products_.wanted.score) return;
      const HeadRows<T> q(p_.q, b, h);
      const MutableView to(parameter_of<T>(products_.to.dmatrix, heads, h), Shape{p_.D, p_.Dk});
      gemm(View(q).swapped(0, 1), dq_made, to, {.accumulate = true, .threads = p_.threads});
    });
    copy_rows(products_.dk_made, products_.dk);
  }

  // a = Wq q, b = Wk k: dq = Wq^T da, dWq = sum da q^T, and for keys alike.
  void additive() {
    const std::vector<PairSums>& sums = products_.sums;
    const ScoreParameters& parameters = *scoring_.parameters;
    project_back<T>(p_.q, products_.dq_made, parameters.query_weights, products_.dq,
                    products_.wanted.score ? &products_.to.dquery_weights : nullptr, p_.threads);
    if (products_.dk_made) {
      project_keys_back({p_.k, products_.dk_made, parameters, products_.dk,
                         products_.wanted.score ? &products_.to.dkey_weights : nullptr, p_.threads});
    }
    if (!products_.wanted.score || sums.empty()) return;
    const std::int64_t heads = parameters.hidden.shape()[0], E = parameters.hidden_width();
    std::vector<double> total(static_cast<std::size_t>(heads * E), 0.0);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t h = heads == 1 ? 0 : i % static_cast<std::size_t>(p_.H);
      for (std::size_t e = 0; e < sums[i].hidden.size(); ++e) {
        total[h * static_cast<std::size_t>(E) + e] += sums[i].hidden[e] * products_.factor;
      }
    }
    T* to = products_.to.dhidden_weights.view().as<T>();
    for (std::size_t i = 0; i < total.size(); ++i) to[i] = static_cast<T>(total[i]);
  }

 private:
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
          for (std::int64_t c = 0; c < target.extent(1); ++c) at<T>(target, i, c) += at<T>(rows, i, c);
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
          along += product(direction[c], at<T>(gradients, j, c));
          any |= at<T>(gradients, j, c) != T(0);
        }
        if (!any) continue;  // perhaps a key that must not be read
        long double square = 0;
        for (std::int64_t c = 0; c < D; ++c) {
          square += static_cast<long double>(rows[j][c]) * static_cast<long double>(rows[j][c]);
        }
        if (square == 0) continue;
        const auto inverse = static_cast<double>(1 / std::sqrt(square));
        for (std::int64_t c = 0; c < D; ++c) {
          const double across = static_cast<double>(at<T>(gradients, j, c)) - static_cast<double>(direction[c]) * along;
          at<T>(target, j, c) += static_cast<T>(across * inverse);
        }
      }
    }
  }

  const ProductsToFinish& products_;
  const Problem& p_;
  const Scoring& scoring_;
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
      return forms.additive();
    case Score::Kind::yours:
      return forms.as_they_are();
    case Score::Kind::constant:
      return;
    default:
      return finish_distances(products);
  }
}

}  // namespace

void prepare_products(const Problem& problem, Scoring& scoring) {
  for (ScoreWay* way : {&scoring.usual, &scoring.exact}) {
    way->product_width = way->width;
    if (way->kind == ScoreWay::Kind::distance) prepare_distances(problem, scoring, *way);
  }
}

std::int64_t gradient_key_heads(const Problem& problem, const Scoring& scoring) {
  const bool shared = scoring.usual.key_group == problem.group && !scoring.heads_differ();
  return shared ? problem.Hk : problem.H;
}

bool takes_queries_as_they_are(const Score& score) {
  return score.kind == Score::Kind::dot || score.kind == Score::Kind::scaled_dot;
}

void finish_gradients(const ProductsToFinish& products) {
  products.problem.compute == Dtype::float64 ? finish_as<double>(products) : finish_as<float>(products);
}

}  // namespace qkv
