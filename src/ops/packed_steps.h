// ops/packed_steps.h: sequences of different lengths, step by step and without gaps.
//
// The longest sequence comes first; `place` is a sequence's number in that order. At each step the sequences that are
// still going on are the first few, so that a step is a block of rows, and all steps one after the other are a matrix.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/tensor.h>

namespace qkv {

class PackedSteps {
 public:
  explicit PackedSteps(const std::vector<std::int64_t>& lengths);

  std::int64_t sequences() const { return static_cast<std::int64_t>(sequences_.size()); }
  std::int64_t steps() const { return static_cast<std::int64_t>(firsts_.size()) - 1; }  // of the longest
  std::int64_t rows() const { return firsts_.back(); }                                  // of all steps
  std::int64_t first(std::int64_t step) const { return firsts_[static_cast<std::size_t>(step)]; }
  std::int64_t count(std::int64_t step) const { return first(step + 1) - first(step); }
  std::int64_t sequence(std::int64_t place) const { return sequences_[static_cast<std::size_t>(place)]; }
  std::int64_t length(std::int64_t place) const { return lengths_[static_cast<std::size_t>(place)]; }

  // [B, T, D], any strides, to [rows, D]. What lies beyond a sequence's end is not read.
  Tensor pack(const View& x) const;
  // And back, to [B, T, D] with zeros beyond the ends.
  Tensor unpack(const View& packed, std::int64_t T) const;

 private:
  std::vector<std::int64_t> sequences_, lengths_;  // by place
  std::vector<std::int64_t> firsts_;               // of each step, and the number of rows
};

}  // namespace qkv
