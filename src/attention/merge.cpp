// attention/merge.cpp: partial answers over disjoint keys become one.
#include <qkv/merge.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <qkv/error.h>

#include "attention/load.h"
#include "base/message.h"
#include "base/numbers.h"
#include "tensor/elements.h"

namespace qkv {
namespace {

constexpr const char* operation = "merge";

void check(std::span<const Attended> parts, std::span<const std::int64_t> first_keys) {
  if (parts.empty()) throw OptionError(message(operation, ": there are no parts"));
  if (!first_keys.empty() && first_keys.size() != parts.size()) {
    throw ShapeError(
        message(operation, ": first_keys has ", first_keys.size(), " numbers for ", parts.size(), " parts"));
  }
  const Attended& first = parts[0];
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Attended& part = parts[i];
    if (part.state_kind == PartialState::none) {
      throw OptionError(message(operation, ": part ", i, " has no state; attend must be asked with want_partial"));
    }
    if (part.state_kind != first.state_kind) {
      throw OptionError(message(operation, ": part ", i, " was weighed in another way than part 0"));
    }
    const bool state = part.state_kind > PartialState::answer, index = part.state_kind == PartialState::best;
    if (!part.out || state != static_cast<bool>(part.state) || index != static_cast<bool>(part.index)) {
      throw OptionError(message(operation, ": part ", i, " has no state; attend must be asked with want_partial"));
    }
    if (!(part.out.shape() == first.out.shape()) || (state && !(part.state.shape() == first.state.shape()))) {
      throw ShapeError(
          message(operation, ": part ", i, " is ", part.out.shape().text(), ", and part 0 ", first.out.shape().text()));
    }
    if (part.out.dtype() != first.out.dtype() || (state && part.state.dtype() != first.state.dtype())) {
      throw DtypeError(message(operation, ": part ", i, " is ", name_of(part.out.dtype()), ", and part 0 ",
                               name_of(first.out.dtype())));
    }
  }
}

// How much each part counts in one row, and the state of the whole.
struct Shares {
  std::vector<double> of_part;
  double state = 0;
  std::int64_t index = -1;
};

double state_of(const Attended& part, std::int64_t row) { return part.state ? floating_at(part.state, row) : 0; }

void share_log_sums(std::span<const Attended> parts, std::int64_t row, Shares& shares) {
  double largest = -infinity<double>, sum = 0;
  for (const Attended& part : parts) {
    const double lse = state_of(part, row);
    largest = lse > largest || std::isnan(lse) ? lse : largest;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double lse = state_of(parts[i], row);
    sum += shares.of_part[i] = lse == -infinity<double> ? 0 : std::exp(lse - largest);
  }
  shares.state = sum == 0 ? -infinity<double> : largest + std::log(sum);
  for (double& share : shares.of_part) share = share == 0 ? 0 : share / sum;
}

// Sums and counts.
void share_sums(std::span<const Attended> parts, std::int64_t row, Shares& shares) {
  double sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) sum += shares.of_part[i] = state_of(parts[i], row);
  shares.state = sum;
  for (double& share : shares.of_part) share = share == 0 || sum == 0 ? 0 : share / sum;
}

void share_best(std::span<const Attended> parts, std::span<const std::int64_t> first_keys, std::int64_t row,
                Shares& shares) {
  std::fill(shares.of_part.begin(), shares.of_part.end(), 0.0);
  shares.state = -infinity<double>;
  shares.index = -1;
  std::size_t chosen = parts.size();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double score = state_of(parts[i], row);
    const std::int64_t index = integer_at(parts[i].index, row);
    if (std::isnan(score)) {
      shares.of_part[i] = shares.state = score;
      shares.index = -1;
      return;
    }
    if (index < 0 || (chosen < parts.size() && score <= shares.state)) continue;
    chosen = i;
    shares.state = score;
    shares.index = index + (first_keys.empty() ? 0 : first_keys[i]);
  }
  if (chosen < parts.size()) shares.of_part[chosen] = 1;
}

template <class T>
void pool(std::span<const Attended> parts, const std::vector<double>& shares, std::int64_t row, Tensor& out) {
  const std::int64_t width = out.shape().back();
  std::vector<double> sum(static_cast<std::size_t>(width), 0.0);
  std::vector<T> values(sum.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (shares[i] == 0) continue;  // the part of a row that saw nothing has no say
    load_row(parts[i].out, row * width, 1, width, values.data());
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += shares[i] * static_cast<double>(values[c]);
  }
  std::transform(sum.begin(), sum.end(), values.begin(), [](double x) { return static_cast<T>(x); });
  store_row(values.data(), width, T(1), out.view(), row * width, 1);
}

}  // namespace

Attended merge(std::span<const Attended> parts, std::span<const std::int64_t> first_keys) {
  check(parts, first_keys);
  const PartialState kind = parts[0].state_kind;
  Attended whole;
  whole.state_kind = kind;
  whole.out = Tensor(parts[0].out.shape(), parts[0].out.dtype());
  if (kind > PartialState::answer) whole.state = Tensor(parts[0].state.shape(), parts[0].state.dtype());
  if (kind == PartialState::best) whole.index = Tensor(parts[0].index.shape(), Dtype::int64);
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < whole.out.shape().rank(); ++axis) rows *= whole.out.shape()[axis];
  Shares shares;
  for (std::int64_t row = 0; row < rows; ++row) {
    shares.of_part.assign(parts.size(), 1.0);
    if (kind == PartialState::log_sum) share_log_sums(parts, row, shares);
    if (kind == PartialState::sum || kind == PartialState::count) share_sums(parts, row, shares);
    if (kind == PartialState::best) share_best(parts, first_keys, row, shares);
    if (whole.out.dtype() == Dtype::float64) {
      pool<double>(parts, shares.of_part, row, whole.out);
    } else {
      pool<float>(parts, shares.of_part, row, whole.out);
    }
    if (whole.index) whole.index.values<std::int64_t>()[static_cast<std::size_t>(row)] = shares.index;
    if (!whole.state) continue;
    if (whole.state.dtype() == Dtype::float64) {
      whole.state.values<double>()[static_cast<std::size_t>(row)] = shares.state;
    } else {
      whole.state.values<float>()[static_cast<std::size_t>(row)] = static_cast<float>(shares.state);
    }
  }
  if (kind == PartialState::log_sum) whole.lse = whole.state.clone();
  return whole;
}

}  // namespace qkv
