// gradients/check.cpp: measures derivatives of attend.
#include "gradients/check.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "support/random.h"

namespace qkv::test {
namespace {

constexpr double step = 1e-5, tolerance = 1e-6;

// The offset in elements of the i-th element in row-major order.
std::int64_t place_of(const View& view, std::int64_t i) {
  std::int64_t at = 0;
  for (int axis = view.rank() - 1; axis >= 0; --axis) {
    at += i % view.extent(axis) * view.stride(axis);
    i /= view.extent(axis);
  }
  return at;
}

// Weighs nothing where there is no number: a log-sum-exp of a query that sees nothing, an entropy of signed weights.
Tensor where_finite(const Tensor& weights, const Tensor& values) {
  if (!weights) return {};
  Tensor kept = weights.clone();
  for (std::size_t i = 0; i < kept.values<double>().size(); ++i) {
    if (!std::isfinite(values.values<double>()[i])) kept.values<double>()[i] = 0;
  }
  return kept;
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.values<double>().size(); ++i) {
    if (std::isfinite(a.values<double>()[i])) sum += a.values<double>()[i] * b.values<double>()[i];
  }
  return sum;
}

double largest(const View& gradient) {
  double largest = 0;
  for (std::int64_t i = 0; i < gradient.elements(); ++i) {
    largest = std::max(largest, std::abs(gradient.as<double>()[i]));
  }
  return largest;
}

}  // namespace

Loss::Loss(const Problem& problem, std::uint64_t seed) : problem_(problem), options_(problem.options()) {
  options_.want_backward = true;
  const View q = problem.q(), v = problem.v();
  const Shape row{q.extent(0), q.extent(1), q.extent(2)};
  out_ = random_tensor({row[0], row[1], row[2], v.extent(3)}, seed, Dtype::float64);
  if (options_.want_lse) lse_ = random_tensor(row, seed + 1, Dtype::float64);
  if (options_.want_entropy) entropy_ = random_tensor(row, seed + 2, Dtype::float64);
}

double Loss::value() const {
  const Attended answer = attend(problem_.q(), problem_.k(), problem_.v(), options_);
  double sum = dot(answer.out, out_);
  if (lse_) sum += dot(answer.lse, lse_);
  if (entropy_) sum += dot(answer.entropy, entropy_);
  return sum;
}

AttendGradients Loss::gradients(const AttendWanted& wanted) const {
  const Attended answer = attend(problem_.q(), problem_.k(), problem_.v(), options_);
  const Tensor lse = where_finite(lse_, answer.lse), entropy = where_finite(entropy_, answer.entropy);
  return attend_backward(problem_.q(), problem_.k(), problem_.v(), answer, {out_, lse, entropy}, options_, wanted);
}

std::vector<Derivative> derivatives(const Problem& problem, const AttendGradients& gradients) {
  const Score& score = problem.options().score;
  std::vector<Derivative> all;
  const auto add = [&](const char* name, const View& of, const Tensor& gradient) {
    if (!of || !gradient) return;
    all.push_back({name, MutableView(const_cast<void*>(of.data()), of.dtype(), of.shape(), of.strides()), gradient});
  };
  add("q", problem.q(), gradients.dq);
  add("k", problem.k(), gradients.dk);
  add("v", problem.v(), gradients.dv);
  add("M", score.matrix, gradients.dmatrix);
  add("Wq", score.query_weights, gradients.dquery_weights);
  add("Wk", score.key_weights, gradients.dkey_weights);
  add("w", score.hidden_weights, gradients.dhidden_weights);
  add("sigma", score.bandwidths, gradients.dbandwidths);
  return all;
}

void expect_differences(const Loss& loss, const std::vector<Derivative>& derivatives) {
  for (const Derivative& d : derivatives) {
    ASSERT_EQ(d.of.shape(), d.gradient.shape()) << d.name;
    const double scale = largest(d.gradient);
    for (std::int64_t i = 0; i < d.of.elements(); ++i) {
      double& x = d.of.as<double>()[place_of(d.of, i)];
      const double before = x;
      x = before + step;
      const double above = loss.value();
      x = before - step;
      const double below = loss.value();
      x = before;
      const double measured = (above - below) / (2 * step), given = d.gradient.as<double>()[i];
      const double size = std::max({std::abs(measured), std::abs(given), 1e-3 * scale, 1e-3});
      ASSERT_NEAR(given, measured, tolerance * size) << "d loss / d " << d.name << ", element " << i;
    }
  }
}

void expect_directions(const Loss& loss, const std::vector<Derivative>& derivatives, int directions) {
  for (const Derivative& d : derivatives) {
    ASSERT_EQ(d.of.shape(), d.gradient.shape()) << d.name;
    const std::int64_t count = d.of.elements();
    for (int n = 0; n < directions; ++n) {
      const Tensor direction = random_tensor({count}, static_cast<std::uint64_t>(n) + 31, Dtype::float64);
      const auto along = direction.values<double>();
      const auto move = [&](double by) {
        for (std::int64_t i = 0; i < count; ++i) {
          d.of.as<double>()[place_of(d.of, i)] += by * along[static_cast<std::size_t>(i)];
        }
      };
      const Tensor start = Tensor::copy_of(d.of);
      double given = 0, size = 1e-3;
      for (std::int64_t i = 0; i < count; ++i) {
        const double term = d.gradient.as<double>()[i] * along[static_cast<std::size_t>(i)];
        given += term;
        size = std::max(size, std::abs(term));
      }
      move(step);
      const double above = loss.value();
      move(-2 * step);
      const double below = loss.value();
      for (std::int64_t i = 0; i < count; ++i) {
        d.of.as<double>()[place_of(d.of, i)] = start.values<double>()[static_cast<std::size_t>(i)];
      }
      const double measured = (above - below) / (2 * step);
      ASSERT_NEAR(given, measured, tolerance * std::max({std::abs(measured), std::abs(given), size}))
          << "d loss along direction " << n << " of " << d.name;
    }
  }
}

Case in_double(Case c) {
  c.q = c.k = c.v = Dtype::float64;
  c.parameters = Dtype::float64;
  return c;
}

Problem without_ties(Case c) {
  const Weigh weigh = c.weigh;
  const bool picks = weigh.kind == Weigh::Kind::hard || weigh.kind == Weigh::Kind::top_k;
  if (picks) c.weigh = softmax();
  Problem problem(c);
  problem.options().weigh = weigh;
  if (!has_log_sum(weigh)) problem.options().want_lse = problem.options().want_entropy = false;
  return problem;
}

}  // namespace qkv::test
