// reference/score.cpp: how well each key answers a query, one formula a line.
#include "reference/score.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "reference/elements.h"

namespace qkv::reference {

namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// The part of head h of a parameter that is shared by the heads, of this rank, or has a leading axis of heads.
View of_head(const View& parameter, int rank, std::int64_t h) {
  if (parameter.rank() == rank) return parameter;
  std::vector<std::int64_t> extents(parameter.shape().begin() + 1, parameter.shape().end());
  Strides strides = {};
  for (int axis = 0; axis < rank; ++axis) strides[static_cast<std::size_t>(axis)] = parameter.stride(axis + 1);
  const auto* first = static_cast<const std::byte*>(parameter.data()) +
                      h * parameter.stride(0) * static_cast<std::int64_t>(size_of(parameter.dtype()));
  return View(first, parameter.dtype(), Shape(extents), strides);
}

template <class T>
std::vector<std::vector<T>> of_each_head(const View& parameter, int rank, std::int64_t H) {
  std::vector<std::vector<T>> heads;
  for (std::int64_t h = 0; parameter && h < H; ++h) heads.push_back(elements<T>(of_head(parameter, rank, h)));
  return heads;
}

// [rows, width] times a vector.
template <class T>
std::vector<T> times(const std::vector<T>& matrix, const T* vector, std::int64_t rows, std::int64_t width) {
  std::vector<T> product(at(rows), 0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t d = 0; d < width; ++d) product[at(r)] += matrix[at(r * width + d)] * vector[d];
  }
  return product;
}

template <class T>
T length(const T* vector, std::int64_t width, std::int64_t stride) {
  T squares = 0;
  for (std::int64_t d = 0; d < width; ++d) squares += vector[d * stride] * vector[d * stride];
  return std::sqrt(squares);
}

// max(0, x) that keeps NaN.
template <class T>
T positive_part(T x) {
  return x < 0 ? 0 : x;
}

// ln kappa(u)
template <class T>
T log_kernel(Score::Kind kind, T u) {
  const T none = -std::numeric_limits<T>::infinity();
  switch (kind) {
    case Score::Kind::gaussian:
      return -u * u / 2;
    case Score::Kind::laplace:
      return -u;
    case Score::Kind::boxcar:
      return u <= 1 ? 0 : u > 1 ? none : u;
    case Score::Kind::triangular:
      return std::log(positive_part(1 - u));
    case Score::Kind::epanechnikov:
      return std::log(static_cast<T>(0.75) * positive_part(1 - u * u));
    default:
      return 0;  // constant
  }
}

}  // namespace

bool is_compact(const Score& score) {
  return score.kind == Score::Kind::boxcar || score.kind == Score::Kind::triangular ||
         score.kind == Score::Kind::epanechnikov;
}

template <class T>
Scores<T>::Scores(const Score& score, const View& q, const View& k)
    : score_(score),
      H_(q.extent(1)),
      Hk_(k.extent(1)),
      Tq_(q.extent(2)),
      Tk_(k.extent(2)),
      Dq_(q.extent(3)),
      Dk_(k.extent(3)),
      q_(elements<T>(q)),
      k_(elements<T>(k)),
      k_transposed_(elements<T>(k.swapped(2, 3))),
      matrix_(of_each_head<T>(score.matrix, 2, H_)),
      query_weights_(of_each_head<T>(score.query_weights, 2, H_)),
      key_weights_(of_each_head<T>(score.key_weights, 2, H_)),
      hidden_weights_(of_each_head<T>(score.hidden_weights, 1, H_)),
      bandwidths_(of_each_head<T>(score.bandwidths, 1, H_)) {
  if (score.kind != Score::Kind::additive) return;
  E_ = score.hidden_weights.shape().back();
  for (std::int64_t b = 0; b < q.extent(0); ++b) {
    for (std::int64_t h = 0; h < H_; ++h) {
      std::vector<T>& hidden = hidden_keys_.emplace_back(at(E_ * Tk_));
      for (std::int64_t j = 0; j < Tk_; ++j) {
        const T* key = k_.data() + ((b * Hk_ + h / (H_ / Hk_)) * Tk_ + j) * Dk_;
        const std::vector<T> projected = times(key_weights_[at(h)], key, E_, Dk_);
        for (std::int64_t e = 0; e < E_; ++e) hidden[at(e * Tk_ + j)] = projected[at(e)];
      }
    }
  }
}

// q . k
template <class T>
std::vector<T> Scores<T>::products(const std::vector<T>& query, const T* keys) const {
  std::vector<T> sums(at(Tk_), 0);
  for (std::int64_t d = 0; d < Dk_; ++d) {
    for (std::int64_t j = 0; j < Tk_; ++j) sums[at(j)] += query[at(d)] * keys[d * Tk_ + j];
  }
  return sums;
}

// |(q - k) / sigma|
template <class T>
std::vector<T> Scores<T>::distances(const T* query, const T* keys, std::int64_t h) const {
  std::vector<T> u(at(Tk_), 0);
  for (std::int64_t d = 0; d < Dk_; ++d) {
    T sigma = static_cast<T>(score_.bandwidth);
    if (score_.bandwidths) sigma = bandwidths_[at(h)][bandwidths_[at(h)].size() == 1 ? 0 : at(d)];
    for (std::int64_t j = 0; j < Tk_; ++j) {
      const T difference = (query[d] - keys[d * Tk_ + j]) / sigma;
      u[at(j)] += difference * difference;
    }
  }
  for (T& distance : u) distance = std::sqrt(distance);
  return u;
}

template <class T>
std::vector<T> Scores<T>::by_your_function(std::int64_t b, std::int64_t h, std::int64_t i, const T* query,
                                           std::int64_t key_head) const {
  std::vector<T> scores(at(Tk_), 0);
  // The function may take only one of the two types; then this row visits the other type.
  const auto call = [&]<class U>(void (*function)(const void*, const ScoreTile<U>&)) {
    const T* first_key = k_.data() + (b * Hk_ + key_head) * Tk_ * Dk_;
    const std::vector<U> query_row(query, query + Dq_), key_rows(first_key, first_key + Tk_ * Dk_);
    std::vector<U> row(at(Tk_));
    function(score_.function, {{row.data(), 1, 1, Tk_, b, h, i, 0}, query_row.data(), key_rows.data(), Dq_, Dk_, Dk_});
    std::transform(row.begin(), row.end(), scores.begin(), [](U score) { return static_cast<T>(score); });
  };
  const bool prefers_double = std::is_same_v<T, double>;
  if (score_.call_double != nullptr && (prefers_double || score_.call_float == nullptr)) {
    call(score_.call_double);
  } else {
    call(score_.call_float);
  }
  return scores;
}

template <class T>
std::vector<T> Scores<T>::row(std::int64_t b, std::int64_t h, std::int64_t i) const {
  const std::int64_t key_head = h / (H_ / Hk_);
  const T* q = q_.data() + ((b * H_ + h) * Tq_ + i) * Dq_;
  const T* k = k_transposed_.data() + (b * Hk_ + key_head) * Dk_ * Tk_;
  std::vector<T> s;
  switch (score_.kind) {
    case Score::Kind::dot:
    case Score::Kind::scaled_dot:  // its scale comes later
      return products(std::vector<T>(q, q + Dq_), k);
    case Score::Kind::cosine: {
      s = products(std::vector<T>(q, q + Dq_), k);
      const T query_length = length(q, Dq_, 1);
      for (std::int64_t j = 0; j < Tk_; ++j) {
        const T lengths = query_length * length(k + j, Dk_, Tk_);
        s[at(j)] = lengths == 0 ? 0 : s[at(j)] / lengths;
      }
      return s;
    }
    case Score::Kind::bilinear: {  // (M^T q) . k
      std::vector<T> query(at(Dk_), 0);
      for (std::int64_t d = 0; d < Dq_; ++d) {
        for (std::int64_t e = 0; e < Dk_; ++e) query[at(e)] += matrix_[at(h)][at(d * Dk_ + e)] * q[d];
      }
      return products(query, k);
    }
    case Score::Kind::additive: {  // w . tanh(Wq q + Wk k)
      s.assign(at(Tk_), 0);
      const std::vector<T> query = times(query_weights_[at(h)], q, E_, Dq_);
      const std::vector<T>& keys = hidden_keys_[at(b * H_ + h)];
      for (std::int64_t e = 0; e < E_; ++e) {
        const T w = hidden_weights_[at(h)][at(e)];
        for (std::int64_t j = 0; j < Tk_; ++j) s[at(j)] += w * std::tanh(query[at(e)] + keys[at(e * Tk_ + j)]);
      }
      return s;
    }
    case Score::Kind::constant:
      s.assign(at(Tk_), 0);
      return s;
    case Score::Kind::yours:
      return by_your_function(b, h, i, q, key_head);
    default:
      s = distances(q, k, h);
      for (T& u : s) u = log_kernel(score_.kind, u);
      return s;
  }
}
template class Scores<double>;
template class Scores<float>;

}  // namespace qkv::reference
