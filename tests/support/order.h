// support/order.h: which keys come first, where scores are known up to rounding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <qkv/attend.h>

namespace qkv::test {

// The exact scores of all rows, and how far from them computed ones may be.
//
// Two scores that are closer than that may come in any order, unless they tie: those of two keys that are the same
// numbers, and those of kernels that are the same everywhere, are equal however they are rounded, and the earlier key
// comes first.
class Order {
 public:
  // `scores` [B, H, Tq, Tk] are borrowed.
  Order(const View& q, const View& k, const Score& score, const std::vector<double>& scores, double doubt);

  // Whether it is beyond doubt which keys are the first `count` of this row. A row with NaN has no order; that is
  // clear.
  bool is_clear(std::size_t row, std::int64_t count) const;

  // What is wrong with these places of the first keys of a row, -1 where there are no more; empty if nothing is.
  std::string fault(std::size_t row, std::span<const std::int64_t> got, std::span<const std::int64_t> exact) const;

 private:
  bool tie(std::size_t row, std::size_t a, std::size_t b) const;
  const double* scores(std::size_t row) const { return scores_.data() + row * Tk_; }

  const std::vector<double>& scores_;
  double doubt_;
  bool same_everywhere_;  // the kernel's score is 0, or -inf
  std::size_t H_, Hk_, Tq_, Tk_, Dk_;
  std::vector<double> keys_;  // [B, Hk, Tk, Dk]
};

}  // namespace qkv::test
