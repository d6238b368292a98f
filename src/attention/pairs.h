// attention/pairs.h: what masks say pair by pair (keep, drop, bias, block mask, keep_by), in the layout of a block.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "attention/strategy.h"

namespace qkv {

// What a table holds: nothing is seen; all is seen and nothing added; or it must be looked at.
enum class PairState : std::uint8_t { unknown, none, plain, mixed };

struct PairTable {
  PairState state = PairState::plain;
  bool excludes = false;  // some pair is excluded
  bool gaps = false;      // some key is seen by no row
  bool adds = false;      // some pair that is seen is changed
  bool bits = false;      // it holds bits instead of numbers
};

// A panel of one unit and the keys its rows may see by their ranges.
struct PanelKeys {
  const Panel& panel;
  std::int64_t batch, head;          // head: the first of the unit
  const std::int64_t *first, *last;  // per row
};

// What fill_pairs works with.
template <class T>
struct PairRoom {
  const kernels::PanelKernels<T>& kernels;
  T* rows;  // [rows][stride]
  std::ptrdiff_t stride;
  bool* kept;  // [keys][rows]
  T unit;      // biases are multiplied by it; 0: they only exclude
};

// Where fill_pairs writes, per key.
template <class T>
struct PairTarget {
  T* added;                    // [keys][lanes]
  kernels::RowBits* excluded;  // null: exclusions are wanted as numbers, too
  T* seen;
};

// Fills target.added[j * lanes + r] for keys first + j, j < keys, and the panel's rows with the sum of biases, or -inf
// where any part or the row's range excludes; lanes beyond the panel's rows get 0. Where nothing is added, and bits are
// wanted, it fills target.excluded[j] instead. seen[j] becomes 0 where some row sees the key, -inf elsewhere. Numbers
// or bits are filled only if the answer is `mixed`.
template <class T>
PairTable fill_pairs(const Problem& problem, const PanelKeys& rows, std::int64_t first, int keys,
                     const PairRoom<T>& room, const PairTarget<T>& target);

}  // namespace qkv
