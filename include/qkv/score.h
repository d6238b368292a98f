// qkv/score.h: the first station: how well a key answers a query.
#pragma once

#include <cstdint>
#include <type_traits>

#include <qkv/export.h>
#include <qkv/tensor.h>

namespace qkv {

// One block of scores, key by key, handed to a function of yours that changes them in place.
template <class T>
struct ScoreBlock {
  T* scores;  // the score of query i and key j of this block is scores[j * stride + i]
  std::int64_t stride;
  std::int64_t queries;  // i < queries
  std::int64_t keys;     // j < keys
  std::int64_t batch, head;
  std::int64_t first_query, first_key;  // i and j of this block start here
  T& at(std::int64_t i, std::int64_t j) const { return scores[j * stride + i]; }
};

// The same with the queries and keys it is about, for a function of yours that fills it.
template <class T>
struct ScoreTile : ScoreBlock<T> {
  const T *query_rows, *key_rows;
  std::int64_t query_stride, key_stride;
  std::int64_t width;  // D
  const T* query(std::int64_t i) const { return query_rows + i * query_stride; }
  const T* key(std::int64_t j) const { return key_rows + j * key_stride; }
};

// The same on the way back, for the derivative of such a function: at(i, j) is the gradient of a score, and what it
// comes to for queries and keys is added to dquery(i) and dkey(j).
template <class T>
struct SlopeTile : ScoreTile<T> {
  T *dquery_rows, *dkey_rows;
  std::int64_t gradient_stride;
  T* dquery(std::int64_t i) const { return dquery_rows + i * gradient_stride; }
  T* dkey(std::int64_t j) const { return dkey_rows + j * gradient_stride; }
};

// And for the derivative of a function that edits scores: at(i, j) is the gradient of the edited score, to be replaced
// by that of score(i, j), the score before the edit.
template <class T>
struct SlopeBlock : ScoreBlock<T> {
  const T* unedited;
  const T& score(std::int64_t i, std::int64_t j) const { return unedited[j * this->stride + i]; }
};

// A score is a real number per (query, key). Made by the factories below, read by the library.
// It borrows the memory of its views and function: they must live as long as it is used.
struct Score {
  enum class Kind : std::uint8_t {
    dot,
    scaled_dot,
    cosine,
    bilinear,
    additive,
    gaussian,
    laplace,
    boxcar,
    triangular,
    epanechnikov,
    constant,
    yours,
  };
  Kind kind = Kind::scaled_dot;
  View matrix = {};                                                // bilinear: M
  View query_weights = {}, key_weights = {}, hidden_weights = {};  // additive: Wq, Wk, w
  double bandwidth = 1;                                            // kernels: sigma
  View bandwidths = {};                                            // kernels: sigma per coordinate, instead
  const void* function = nullptr;                                  // yours
  void (*call_float)(const void* function, const ScoreTile<float>& tile) = nullptr;
  void (*call_double)(const void* function, const ScoreTile<double>& tile) = nullptr;
  const void* derivative = nullptr;  // yours, for gradients
  void (*derive_float)(const void* derivative, const SlopeTile<float>& tile) = nullptr;
  void (*derive_double)(const void* derivative, const SlopeTile<double>& tile) = nullptr;

  bool is_kernel() const { return kind >= Kind::gaussian && kind <= Kind::constant; }
};

// q . k
inline Score dot() { return {.kind = Score::Kind::dot}; }

// q . k / sqrt(D), with D the width of queries and keys, never of values.
inline Score scaled_dot() { return {.kind = Score::Kind::scaled_dot}; }

// q . k / (|q| |k|); 0 where either is a zero vector.
inline Score cosine() { return {.kind = Score::Kind::cosine}; }

// q^T M k: queries and keys may differ in width. M is [Dq, Dk], or [H, Dq, Dk], one per query head.
inline Score bilinear(View M) { return {.kind = Score::Kind::bilinear, .matrix = M}; }

// w^T tanh(Wq q + Wk k): queries and keys may differ in width.
// Wq is [E, Dq], Wk [E, Dk], w [E]; any of them may have a leading H, one per query head.
inline Score additive(View Wq, View Wk, View w) {
  return {.kind = Score::Kind::additive, .query_weights = Wq, .key_weights = Wk, .hidden_weights = w};
}

// Kernels are functions of the distance u = |(q - k) / sigma|. Their score is the logarithm, to which a bias is added;
// `normalize` and `raw` weigh by the kernel's value. sigma > 0 is one number, or an array: [D] or [1], shared by the
// heads, or [H, D] or [H, 1].
inline Score gaussian(double sigma = 1) { return {.kind = Score::Kind::gaussian, .bandwidth = sigma}; }  // e^(-u^2 / 2)
inline Score gaussian(View sigma) { return {.kind = Score::Kind::gaussian, .bandwidths = sigma}; }
inline Score laplace(double sigma = 1) { return {.kind = Score::Kind::laplace, .bandwidth = sigma}; }  // e^-u
inline Score laplace(View sigma) { return {.kind = Score::Kind::laplace, .bandwidths = sigma}; }
inline Score boxcar(double sigma = 1) { return {.kind = Score::Kind::boxcar, .bandwidth = sigma}; }  // 1 where u <= 1
inline Score boxcar(View sigma) { return {.kind = Score::Kind::boxcar, .bandwidths = sigma}; }
inline Score triangular(double sigma = 1) {  // max(0, 1 - u)
  return {.kind = Score::Kind::triangular, .bandwidth = sigma};
}
inline Score triangular(View sigma) { return {.kind = Score::Kind::triangular, .bandwidths = sigma}; }
inline Score epanechnikov(double sigma = 1) {  // 3/4 max(0, 1 - u^2)
  return {.kind = Score::Kind::epanechnikov, .bandwidth = sigma};
}
inline Score epanechnikov(View sigma) { return {.kind = Score::Kind::epanechnikov, .bandwidths = sigma}; }
inline Score constant() { return {.kind = Score::Kind::constant}; }  // 1: keys are not read

// Your own: void f(const ScoreTile<T>&) for T = float, double or both (a generic lambda) fills tile.at(i, j) for all
// i < queries, j < keys from tile.query(i) and tile.key(j). Pure, callable from several threads. Borrowed.
// Pairs that the mask excludes may or may not be asked for.
template <class F>
requires(std::is_invocable_v<const F&, const ScoreTile<float>&> ||
         std::is_invocable_v<const F&, const ScoreTile<double>&>) Score score_by(const F& function) {
  Score score{.kind = Score::Kind::yours, .function = &function};
  if constexpr (std::is_invocable_v<const F&, const ScoreTile<float>&>) {
    score.call_float = [](const void* f, const ScoreTile<float>& tile) { (*static_cast<const F*>(f))(tile); };
  }
  if constexpr (std::is_invocable_v<const F&, const ScoreTile<double>&>) {
    score.call_double = [](const void* f, const ScoreTile<double>& tile) { (*static_cast<const F*>(f))(tile); };
  }
  return score;
}
template <class F>
Score score_by(const F&& function) = delete;  // it would be gone before attend calls it

// With its derivative, for attend_backward: void d(const SlopeTile<T>&), likewise, linear in the gradients. That of an
// excluded pair is exactly 0: skip it where keys that not everybody sees may be NaN.
template <class F, class D>
requires(std::is_invocable_v<const D&, const SlopeTile<float>&> ||
         std::is_invocable_v<const D&, const SlopeTile<double>&>) Score
    score_by(const F& function, const D& derivative) {
  Score score = score_by(function);
  score.derivative = &derivative;
  if constexpr (std::is_invocable_v<const D&, const SlopeTile<float>&>) {
    score.derive_float = [](const void* d, const SlopeTile<float>& tile) { (*static_cast<const D*>(d))(tile); };
  }
  if constexpr (std::is_invocable_v<const D&, const SlopeTile<double>&>) {
    score.derive_double = [](const void* d, const SlopeTile<double>& tile) { (*static_cast<const D*>(d))(tile); };
  }
  return score;
}
template <class F, class D>
Score score_by(const F&, const D&&) = delete;

}  // namespace qkv
