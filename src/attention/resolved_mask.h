// attention/resolved_mask.h: a mask checked against the shapes it is used with, ready to be asked by the kernels' loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <qkv/mask.h>

#include "tensor/elements.h"

namespace qkv {

// The extents a mask is about.
struct PairExtents {
  std::int64_t B, H, Tq, Tk;
};

// A run of keys: first <= j < last.
struct KeyRange {
  std::int64_t first, last;
};

// The ranges of a sequence whose queries have no lengths of their own: query i, which stands at p = i + offset, sees
// keys p - left to p + right, of the first `keys`.
struct KeyBand {
  std::int64_t offset, left, right, keys;
  KeyRange at(std::int64_t query) const {
    const std::int64_t p = query + offset;
    return {std::clamp<std::int64_t>(p - left, 0, keys), std::clamp<std::int64_t>(p + right + 1, 0, keys)};
  }
};

// What the parts of a mask come to: a range of keys per query (lengths, causal, window), slopes per head (ALiBi), and
// what must be looked up pair by pair.
class ResolvedMask {
 public:
  ResolvedMask() = default;
  // Throws ShapeError, OptionError, DtypeError naming `operation`.
  ResolvedMask(const Mask& mask, const PairExtents& extents, const char* operation);

  // Ranges.
  bool has_ranges() const { return causal_ || !windows_.empty() || !lengths_.empty(); }
  KeyRange range(std::int64_t batch, std::int64_t query) const;
  bool queries_have_lengths() const;
  KeyBand band(std::int64_t batch) const;  // the same without those lengths
  // How many keys a query may see, at most, by windows and causal, whatever the number of keys and their lengths.
  std::int64_t window_keys() const { return windows().left + windows().right + 1; }
  std::int64_t position(std::int64_t batch, std::int64_t query) const {
    return query + (offsets_.empty() ? 0 : offsets_[static_cast<std::size_t>(batch)]);
  }

  // ALiBi: one slope per head, the sum of all parts', or none.
  std::span<const double> slopes() const { return slopes_; }

  // Looked up pair by pair. Views are broadcast to [B, H, Tq, Tk] (a block mask to [B, H, cells, cells]).
  struct Dense {
    enum class Kind : std::uint8_t { keep, drop, bias } kind;
    View pairs;
  };
  struct Cells {
    View keep;
    std::int64_t queries, keys;  // of a cell
  };
  const std::vector<Dense>& dense() const { return dense_; }
  const std::vector<Cells>& cells() const { return cells_; }
  const std::vector<mask_part::KeepBy>& keep_by() const { return keep_by_; }
  const std::vector<mask_part::EditBy>& edit_by() const { return edit_by_; }
  bool has_pairs() const { return !dense_.empty() || !cells_.empty() || !keep_by_.empty(); }
  bool pairs_vary_by_head() const { return pairs_vary_by_head_; }

 private:
  KeyBand windows() const;  // of positions, whatever the sequence

  std::vector<View> lengths_;  // rank 1 or 2
  bool causal_ = false;
  std::vector<mask_part::Window> windows_;
  std::vector<std::int64_t> offsets_;  // per sequence; empty is all 0
  std::vector<double> slopes_;
  std::vector<Dense> dense_;
  std::vector<Cells> cells_;
  std::vector<mask_part::KeepBy> keep_by_;
  std::vector<mask_part::EditBy> edit_by_;
  bool pairs_vary_by_head_ = false;
  std::int64_t keys_ = 0;
};

}  // namespace qkv
