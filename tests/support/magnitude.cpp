// support/magnitude.cpp: the size of the numbers that are rounded on the way to a score.
#include "support/magnitude.h"

#include <algorithm>
#include <cmath>

#include "reference/elements.h"
#include "reference/score.h"

namespace qkv::test {

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

// The length of all elements together, of the head where it is largest.
double frobenius(const View& x, int rank) {
  const std::vector<double> all = reference::elements<double>(x);
  const std::size_t heads = x.rank() > rank ? static_cast<std::size_t>(x.extent(0)) : 1;
  double largest = 0;
  for (std::size_t h = 0; h < heads; ++h) {
    double squares = 0;
    for (std::size_t n = 0; n < all.size() / heads; ++n) {
      squares += all[h * (all.size() / heads) + n] * all[h * (all.size() / heads) + n];
    }
    largest = std::max(largest, squares);
  }
  return std::sqrt(largest);
}

double smallest_bandwidth(const Score& score) {
  if (!score.bandwidths) return score.bandwidth;
  const std::vector<double> all = reference::elements<double>(score.bandwidths);
  return all.empty() ? 1 : *std::min_element(all.begin(), all.end());
}

}  // namespace

double largest_finite(const std::vector<double>& all) {
  double largest = 0;
  for (const double x : all) largest = std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
  return largest;
}

// The size of the numbers that are rounded on the way to a score, so that one rounding of this size is one of the
// score.
double score_magnitude(const View& q, const View& k, const AttendOptions& options) {
  const Score& s = options.score;
  const double width = std::max<double>(1, static_cast<double>(q.shape().back()));
  const double scale = options.scale                       ? std::abs(*options.scale)
                       : s.kind == Score::Kind::scaled_dot ? 1 / std::sqrt(width)
                                                           : 1;
  switch (s.kind) {
    case Score::Kind::dot:
    case Score::Kind::scaled_dot:
      return longest(q) * longest(k) * scale;
    case Score::Kind::cosine:
      return scale;
    case Score::Kind::bilinear:
      return longest(q) * frobenius(s.matrix, 2) * longest(k) * scale;
    case Score::Kind::additive:
      // The slope of tanh is at most 1: what is rounded before it reaches the score times w.
      return frobenius(s.hidden_weights, 1) *
             (1 + longest(q) * frobenius(s.query_weights, 2) + longest(k) * frobenius(s.key_weights, 2));
    case Score::Kind::gaussian: {
      // As (q . k - |q|^2 / 2 - |k|^2 / 2) / sigma^2.
      const double sum = (longest(q) + longest(k)) / smallest_bandwidth(s);
      return sum * sum / 2;
    }
    case Score::Kind::laplace:
      return (longest(q) + longest(k)) / smallest_bandwidth(s);
    case Score::Kind::boxcar:
    case Score::Kind::triangular:
    case Score::Kind::epanechnikov:
    case Score::Kind::constant:
      return 0;
    case Score::Kind::yours:
      return 1 + longest(q) + longest(k);
  }
  return 0;
}

std::vector<double> pair_magnitudes(const View& q_any_rank, const View& k_any_rank, const AttendOptions& options) {
  const View q = reference::as_rank_4(q_any_rank), k = reference::as_rank_4(k_any_rank);
  const auto rows = static_cast<std::size_t>(q.extent(0) * q.extent(1) * q.extent(2));
  std::vector<double> magnitudes(rows * static_cast<std::size_t>(k.extent(2)), 0);
  if (options.score.kind != Score::Kind::triangular && options.score.kind != Score::Kind::epanechnikov) {
    return magnitudes;
  }
  const reference::Scores<double> scores(options.score, q, k);
  std::size_t n = 0;
  for (std::int64_t b = 0; b < q.extent(0); ++b) {
    for (std::int64_t h = 0; h < q.extent(1); ++h) {
      for (std::int64_t i = 0; i < q.extent(2); ++i) {
        for (const double score : scores.row(b, h, i)) magnitudes[n++] = std::isfinite(score) ? std::exp(-score) : 0;
      }
    }
  }
  return magnitudes;
}

}  // namespace qkv::test
