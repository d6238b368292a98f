// support/order.cpp: which keys come first, where scores are known up to rounding.
#include "support/order.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "reference/elements.h"

namespace qkv::test {

Order::Order(const View& q_any_rank, const View& k_any_rank, const Score& score, const std::vector<double>& scores,
             double doubt)
    : scores_(scores),
      doubt_(doubt),
      same_everywhere_(score.kind == Score::Kind::constant || score.kind == Score::Kind::boxcar) {
  const View q = reference::as_rank_4(q_any_rank), k = reference::as_rank_4(k_any_rank);
  H_ = static_cast<std::size_t>(q.extent(1));
  Hk_ = static_cast<std::size_t>(k.extent(1));
  Tq_ = static_cast<std::size_t>(q.extent(2));
  Tk_ = static_cast<std::size_t>(k.extent(2));
  Dk_ = static_cast<std::size_t>(k.extent(3));
  keys_ = reference::elements<double>(k);
}

bool Order::tie(std::size_t row, std::size_t a, std::size_t b) const {
  if (scores(row)[a] != scores(row)[b]) return false;
  if (same_everywhere_ || a == b) return true;
  const std::size_t b_and_h = row / Tq_, key_head = b_and_h / H_ * Hk_ + b_and_h % H_ / (H_ / Hk_);
  const double *x = keys_.data() + (key_head * Tk_ + a) * Dk_, *y = keys_.data() + (key_head * Tk_ + b) * Dk_;
  return std::equal(x, x + Dk_, y);
}

bool Order::is_clear(std::size_t row, std::int64_t count) const {
  const double* s = scores(row);
  if (count >= static_cast<std::int64_t>(Tk_) || std::any_of(s, s + Tk_, [](double x) { return std::isnan(x); })) {
    return true;
  }
  std::vector<std::size_t> order(Tk_);
  for (std::size_t j = 0; j < Tk_; ++j) order[j] = j;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return s[a] > s[b]; });
  const std::size_t in = order[static_cast<std::size_t>(count - 1)], out = order[static_cast<std::size_t>(count)];
  if (std::isinf(s[out]) || s[in] - s[out] > doubt_) return true;
  for (std::size_t j = 0; j < Tk_; ++j) {
    if (std::abs(s[j] - s[in]) <= doubt_ && !tie(row, j, in)) return false;
  }
  return true;
}

std::string Order::fault(std::size_t row, std::span<const std::int64_t> got,
                         std::span<const std::int64_t> exact) const {
  const double* s = scores(row);
  std::ostringstream text;
  for (std::size_t n = 0; n < got.size(); ++n) {
    if (got[n] == exact[n]) continue;
    text << "place " << n << " of row " << row << " is " << got[n] << ", exactly " << exact[n];
    if (got[n] < 0 || exact[n] < 0 || got[n] >= static_cast<std::int64_t>(Tk_)) return text.str();
    const auto a = static_cast<std::size_t>(got[n]), b = static_cast<std::size_t>(exact[n]);
    text << ", with scores " << s[a] << " and " << s[b];
    if (!(std::abs(s[a] - s[b]) <= doubt_)) return text.str() + ", too far apart to be mistaken";
    const auto before = got.first(n);
    if (std::find(before.begin(), before.end(), got[n]) != before.end()) return text.str() + ", for the second time";
    for (std::size_t j = 0; j < a; ++j) {
      const bool came = std::find(before.begin(), before.end(), static_cast<std::int64_t>(j)) != before.end();
      if (tie(row, j, a) && !came) return text.str() + ", before key " + std::to_string(j) + ", which is its equal";
    }
    text.str("");
  }
  return {};
}

}  // namespace qkv::test
