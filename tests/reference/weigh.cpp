// reference/weigh.cpp: how the scores of one query become weights.
#include "reference/weigh.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace qkv::reference {

namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T nan = std::numeric_limits<T>::quiet_NaN();

// w = exp(s - max) / sum; log-sum-exp = max + log(sum)
template <class T>
Weighed<T> softmax_of(const std::vector<T>& s, const std::vector<bool>& seen) {
  Weighed<T> row{.weights = std::vector<T>(s.size(), 0), .pooled = seen};
  T largest = -infinity<T>, sum = 0;
  for (std::size_t j = 0; j < s.size(); ++j) {
    if (seen[j]) largest = std::max(largest, s[j]);
  }
  for (std::size_t j = 0; j < s.size(); ++j) {
    if (seen[j]) sum += row.weights[j] = std::exp(s[j] - largest);
  }
  for (std::size_t j = 0; j < s.size(); ++j) {
    if (seen[j]) row.weights[j] /= sum;
  }
  row.lse = largest + std::log(sum);
  return row;
}

// w = s / sum
template <class T>
Weighed<T> over_sum(const std::vector<T>& s, const std::vector<bool>& seen) {
  Weighed<T> row{.weights = std::vector<T>(s.size(), 0), .pooled = seen};
  for (std::size_t j = 0; j < s.size(); ++j) {
    if (seen[j]) row.sum += s[j];
  }
  row.empty = row.sum == 0;
  row.lse = std::log(row.sum);
  for (std::size_t j = 0; j < s.size(); ++j) {
    if (seen[j] && !row.empty) row.weights[j] = s[j] / row.sum;
  }
  return row;
}

// w = e^s of a kernel, s of any other
template <class T>
Weighed<T> as_it_is(const std::vector<T>& s, const std::vector<bool>& seen, bool is_kernel) {
  Weighed<T> row{.weights = std::vector<T>(s.size(), 0), .pooled = seen};
  for (std::size_t j = 0; j < s.size(); ++j) {
    if (seen[j]) row.weights[j] = is_kernel ? std::exp(s[j]) : s[j];
  }
  return row;
}

// w = 1 / m
template <class T>
Weighed<T> equal_shares(const std::vector<bool>& seen) {
  Weighed<T> row{.weights = std::vector<T>(seen.size(), 0), .pooled = seen};
  row.count = std::count(seen.begin(), seen.end(), true);
  for (std::size_t j = 0; j < seen.size(); ++j) {
    if (seen[j]) row.weights[j] = static_cast<T>(1) / static_cast<T>(row.count);
  }
  return row;
}

template <class T>
Weighed<T> all_nan(const std::vector<bool>& seen) {
  Weighed<T> row{.weights = std::vector<T>(seen.size(), 0), .pooled = seen, .lse = nan<T>, .best = nan<T>};
  for (std::size_t j = 0; j < seen.size(); ++j) {
    if (seen[j]) row.weights[j] = nan<T>;
  }
  return row;
}

// w = 1 of the first
template <class T>
Weighed<T> first_of(const std::vector<T>& s, const std::vector<std::int64_t>& order, const Weigh& how) {
  Weighed<T> row{.weights = std::vector<T>(s.size(), 0), .pooled = std::vector<bool>(s.size(), false)};
  row.index = order.front();
  row.best = s[at(row.index)];
  row.weights[at(row.index)] = 1;
  row.pooled[at(row.index)] = true;
  row.empty = how.minimum && row.best < static_cast<T>(*how.minimum);
  return row;
}

}  // namespace

template <class T>
std::vector<std::int64_t> by_falling_score(const std::vector<T>& scores, const std::vector<bool>& seen) {
  std::vector<std::int64_t> order;
  for (std::size_t j = 0; j < seen.size(); ++j) {
    if (seen[j]) order.push_back(static_cast<std::int64_t>(j));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return scores[at(a)] > scores[at(b)]; });
  return order;
}
template std::vector<std::int64_t> by_falling_score(const std::vector<double>&, const std::vector<bool>&);
template std::vector<std::int64_t> by_falling_score(const std::vector<float>&, const std::vector<bool>&);

template <class T>
Weighed<T> weigh(const std::vector<T>& scores, const std::vector<bool>& seen, const Weigh& how, bool is_kernel) {
  if (std::find(seen.begin(), seen.end(), true) == seen.end()) {
    return {.weights = std::vector<T>(seen.size(), 0), .pooled = seen, .empty = true};
  }
  const bool picks = how.kind == Weigh::Kind::hard || how.kind == Weigh::Kind::top_k;
  for (std::size_t j = 0; picks && j < scores.size(); ++j) {
    if (seen[j] && std::isnan(scores[j])) return all_nan<T>(seen);
  }
  switch (how.kind) {
    case Weigh::Kind::softmax:
      return softmax_of(scores, seen);
    case Weigh::Kind::normalize:
      return is_kernel ? softmax_of(scores, seen) : over_sum(scores, seen);
    case Weigh::Kind::raw:
      return as_it_is(scores, seen, is_kernel);
    case Weigh::Kind::uniform:
      return equal_shares<T>(seen);
    case Weigh::Kind::hard:
      return first_of(scores, by_falling_score(scores, seen), how);
    case Weigh::Kind::top_k: {
      std::vector<bool> chosen(seen.size(), false);
      std::vector<std::int64_t> order = by_falling_score(scores, seen);
      if (how.k < static_cast<std::int64_t>(order.size())) order.resize(at(how.k));
      for (const std::int64_t j : order) chosen[at(j)] = true;
      return softmax_of(scores, chosen);
    }
  }
  return {};
}
template Weighed<double> weigh(const std::vector<double>&, const std::vector<bool>&, const Weigh&, bool);
template Weighed<float> weigh(const std::vector<float>&, const std::vector<bool>&, const Weigh&, bool);

}  // namespace qkv::reference
