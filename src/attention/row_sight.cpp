// attention/row_sight.cpp: asks the mask about one row.
#include "attention/row_sight.h"

#include <algorithm>

#include "attention/pairs.h"

namespace qkv {

template <class T>
void RowSight<T>::for_each_seen(const RowOf& row, FunctionRef<bool(std::int64_t)> each) const {
  const ResolvedMask& mask = problem_.mask;
  const KeyRange range = mask.has_ranges() ? mask.range(row.batch, row.query) : KeyRange{0, problem_.Tk};
  const Panel panel{0, row.query, 1, 1, 1};
  for (std::int64_t first = range.first; first < range.last; first += strategy_.block_keys) {
    const int keys = static_cast<int>(std::min<std::int64_t>(strategy_.block_keys, range.last - first));
    if (mask.has_pairs()) {
      const PairTable table =
          fill_pairs<T>(problem_, {panel, row.batch, row.head, &range.first, &range.last}, first, keys,
                        {*strategy_.panel, w_.pair_rows, w_.block, w_.kept, T(1)}, {w_.shadow, nullptr, w_.scores});
      if (table.state == PairState::none) continue;
    } else {
      std::fill_n(w_.scores, keys, T(0));
    }
    for (int j = 0; j < keys; ++j) {
      if (w_.scores[j] == T(0) && !each(first + j)) return;
    }
  }
}

template <class T>
std::int64_t RowSight<T>::first_seen(const RowOf& row) const {
  std::int64_t first = -1;
  for_each_seen(row, [&](std::int64_t key) {
    first = key;
    return false;
  });
  return first;
}

template class RowSight<float>;
template class RowSight<double>;

}  // namespace qkv
