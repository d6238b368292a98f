// attention/pairs.cpp: gathers what masks say pair by pair.
#include "attention/pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/numbers.h"
#include "kernels/rows.h"
#include "tensor/elements.h"

namespace qkv {
namespace {

std::int64_t offset_of(const View& pairs, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  return b * pairs.stride(0) + h * pairs.stride(1) + i * pairs.stride(2) + j * pairs.stride(3);
}

// A finite bias stays finite.
template <class T>
T narrowed(double value) {
  constexpr auto largest = static_cast<double>(std::numeric_limits<T>::max());
  return static_cast<T>(std::isfinite(value) ? std::clamp(value, -largest, largest) : value);
}

template <class T>
void add_dense(const ResolvedMask::Dense& part, std::int64_t at, int keys, T unit, T* row) {
  const View& pairs = part.pairs;
  const auto& kernels = kernels::row_kernels<T>();
  const std::int64_t step = pairs.stride(3);
  if (part.kind == ResolvedMask::Dense::Kind::bias) {
    if (unit == T(0)) {
      constexpr double excluded = -infinity<double>;
      for (int j = 0; j < keys; ++j) {
        if (floating_at(pairs, at + j * step) == excluded) row[j] = static_cast<T>(excluded);
      }
      return;
    }
    if (pairs.dtype() == dtype_of<T> && step == 1) return kernels.add_bias(pairs.as<T>() + at, keys, unit, row);
    for (int j = 0; j < keys; ++j) {
      const T value = narrowed<T>(floating_at(pairs, at + j * step));
      kernels.add_bias(&value, 1, unit, row + j);
    }
    return;
  }
  const bool kept = part.kind == ResolvedMask::Dense::Kind::keep;
  const std::uint8_t* flags = pairs.as<std::uint8_t>() + at;
  if (step == 1) return kernels.exclude(flags, kept, keys, row);
  for (int j = 0; j < keys; ++j) kernels.exclude(flags + j * step, kept, 1, row + j);
}

template <class T>
void exclude_cells(const ResolvedMask::Cells& cells, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t first,
                   int keys, T* row) {
  for (std::int64_t j = first; j < first + keys;) {
    const std::int64_t cell = j / cells.keys;
    const std::int64_t end = std::min((cell + 1) * cells.keys, first + keys);
    if (cells.keep.as<std::uint8_t>()[offset_of(cells.keep, b, h, i / cells.queries, cell)] == 0) {
      std::fill(row + (j - first), row + (end - first), -infinity<T>);
    }
    j = end;
  }
}

// A hint to the cache. Rows are too short for it to see where they go on, and would be waited for one by one.
void expect(const View& pairs, const PanelKeys& of, std::int64_t first, int keys) {
  constexpr std::int64_t line = 64;
  const auto size = static_cast<std::int64_t>(size_of(pairs.dtype()));
  const Panel& panel = of.panel;
  for (int r = 0; r < panel.rows() && pairs.stride(3) == 1; ++r) {
    const std::int64_t head = of.head + panel.first_head + r / panel.queries;
    const std::int64_t at = offset_of(pairs, of.batch, head, panel.first_query + r % panel.queries, first);
    const std::byte* row = static_cast<const std::byte*>(pairs.data()) + at * size;
    for (std::int64_t i = 0; i < keys * size; i += line) __builtin_prefetch(row + i);
  }
}

// One head's rows of the panel.
template <class T>
void exclude_by(const mask_part::KeepBy& part, const KeepBlock& block, T* rows, std::ptrdiff_t stride) {
  const Kept kept = part.call(part.function, block);
  if (kept == Kept::all) return;
  for (std::int64_t i = 0; i < block.queries; ++i) {
    for (std::int64_t j = 0; j < block.keys; ++j) {
      if (kept == Kept::none || !block.at(i, j)) rows[i * stride + j] = -infinity<T>;
    }
  }
}

// The usual case is one dense mask, whose rows lie side by side and are seen whole: null where it is not so.
const ResolvedMask::Dense* alone(const Problem& problem, const PanelKeys& of, std::int64_t first, int keys) {
  const ResolvedMask& mask = problem.mask;
  if (mask.dense().size() != 1 || !mask.cells().empty() || !mask.keep_by().empty() || of.panel.heads != 1) {
    return nullptr;
  }
  const ResolvedMask::Dense& part = mask.dense().front();
  if (part.pairs.stride(3) != 1) return nullptr;
  for (int r = 0; r < of.panel.rows(); ++r) {
    if (of.first[r] > first || of.last[r] < first + keys) return nullptr;
  }
  return &part;
}

// A bias that is finite here and excludes nothing, in half the time. False where that is not so, or where it may be
// nothing but zeros; then the target means nothing.
template <class T>
bool fill_with_bias(const ResolvedMask::Dense& part, const Panel& panel, std::int64_t at, int keys,
                    const PairRoom<T>& room, T* target) {
  const View& pairs = part.pairs;
  if (part.kind != ResolvedMask::Dense::Kind::bias || pairs.dtype() != dtype_of<T> || room.unit == T(0) ||
      panel.lanes % room.kernels.vector != 0) {
    return false;
  }
  room.kernels.transpose({pairs.as<T>() + at, pairs.stride(2), panel.rows(), keys, room.unit, target, panel.lanes});
  return target[0] != T(0) && kernels::row_kernels<T>().finite(target, std::int64_t{keys} * panel.lanes);
}

// What the bits come to.
template <class T>
PairTable table_of_bits(const PairTarget<T>& target, int rows, int keys) {
  const kernels::RowBits all = ~kernels::RowBits{0} >> (8 * sizeof(kernels::RowBits) - static_cast<unsigned>(rows));
  kernels::RowBits some = 0, every = all;
  bool gaps = false;
  for (int j = 0; j < keys; ++j) {
    const kernels::RowBits excluded = target.excluded[j];
    some |= excluded;
    every &= excluded;
    gaps |= excluded == all;
    target.seen[j] = excluded == all ? -infinity<T> : T(0);
  }
  if (every == all) return {PairState::none, true, true};
  if (some == 0) return {PairState::plain};
  return {PairState::mixed, true, gaps, false, true};
}

}  // namespace

template <class T>
PairTable fill_pairs(const Problem& problem, const PanelKeys& of, std::int64_t first, int keys, const PairRoom<T>& room,
                     const PairTarget<T>& target) {
  constexpr T excluded = -infinity<T>;
  const ResolvedMask& mask = problem.mask;
  const Panel& panel = of.panel;
  T* seen = target.seen;
  for (const auto& part : mask.dense()) expect(part.pairs, of, first, keys);
  if (const auto* part = alone(problem, of, first, keys)) {
    const View& pairs = part->pairs;
    const std::int64_t at = offset_of(pairs, of.batch, of.head + panel.first_head, panel.first_query, first);
    if (fill_with_bias(*part, panel, at, keys, room, target.added)) {
      std::fill(seen, seen + keys, T(0));
      return {PairState::mixed, false, false, true};
    }
    if (part->kind != ResolvedMask::Dense::Kind::bias && target.excluded != nullptr) {
      kernels::row_kernels<T>().gather_flags(pairs.as<std::uint8_t>() + at, pairs.stride(2),
                                             part->kind == ResolvedMask::Dense::Kind::keep, panel.rows(), keys,
                                             target.excluded);
      return table_of_bits(target, panel.rows(), keys);
    }
  }
  for (int h = 0; h < panel.heads; ++h) {
    const std::int64_t head = of.head + panel.first_head + h;
    T* rows = room.rows + h * panel.queries * room.stride;
    for (int i = 0; i < panel.queries; ++i) {
      T* row = rows + i * room.stride;
      const std::int64_t query = panel.first_query + i;
      std::fill(row, row + keys, T(0));
      for (const auto& part : mask.dense()) {
        add_dense(part, offset_of(part.pairs, of.batch, head, query, first), keys, room.unit, row);
      }
      for (const auto& cells : mask.cells()) exclude_cells(cells, of.batch, head, query, first, keys, row);
    }
    const KeepBlock block{room.kept, panel.queries, panel.queries, keys, of.batch, head, panel.first_query, first};
    for (const auto& part : mask.keep_by()) exclude_by(part, block, rows, room.stride);
  }
  unsigned found = 0;
  std::fill(seen, seen + keys, excluded);
  for (int r = 0; r < panel.rows(); ++r) {
    T* row = room.rows + r * room.stride;
    const auto begin = static_cast<int>(std::clamp<std::int64_t>(of.first[r] - first, 0, keys));
    const auto end = static_cast<int>(std::clamp<std::int64_t>(of.last[r] - first, begin, keys));
    std::fill(row, row + begin, excluded);
    std::fill(row + end, row + keys, excluded);
    found |= kernels::row_kernels<T>().survey(row, keys, seen);
  }
  if ((found & kernels::found_kept) == 0) return {PairState::none, true, true};
  const bool excludes = (found & kernels::found_excluded) != 0;
  const bool adds = (found & kernels::found_nonzero) != 0;
  if (!excludes && !adds) return {PairState::plain, false, false};
  if (!adds && target.excluded != nullptr) {
    kernels::row_kernels<T>().gather_signs(room.rows, room.stride, panel.rows(), keys, target.excluded);
    return table_of_bits(target, panel.rows(), keys);
  }
  if (panel.lanes % room.kernels.vector == 0) {
    room.kernels.transpose({room.rows, room.stride, panel.rows(), keys, T(1), target.added, panel.lanes});
  } else {
    for (int j = 0; j < keys; ++j) {
      for (int r = 0; r < panel.lanes; ++r) {
        target.added[j * panel.lanes + r] = r < panel.rows() ? room.rows[r * room.stride + j] : T(0);
      }
    }
  }
  return {PairState::mixed, excludes, excludes && std::find(seen, seen + keys, excluded) != seen + keys, adds};
}

template PairTable fill_pairs(const Problem&, const PanelKeys&, std::int64_t, int, const PairRoom<float>&,
                              const PairTarget<float>&);
template PairTable fill_pairs(const Problem&, const PanelKeys&, std::int64_t, int, const PairRoom<double>&,
                              const PairTarget<double>&);

}  // namespace qkv
