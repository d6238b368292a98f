// attention/ahead.cpp: finds what is read next, and divides it among panels and tiles.
#include "attention/ahead.h"

#include <algorithm>

#include "base/divide_up.h"

namespace qkv {
namespace {

// Addresses are numbers here: they may lie behind the end of something, as nothing is read.
struct Stretch {
  std::uintptr_t first = 0;
  std::int64_t bytes = 0;
};

Stretch rows_of(const View& view, std::int64_t batch, std::int64_t head, KeyRange rows) {
  if (view.stride(3) != 1 || view.stride(2) != view.extent(3)) return {};
  const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
  const std::int64_t at = batch * view.stride(0) + head * view.stride(1) + rows.first * view.stride(2);
  return {reinterpret_cast<std::uintptr_t>(view.data()) + static_cast<std::uintptr_t>(at * size),
          (rows.last - rows.first) * view.stride(2) * size};
}

Stretch part(const Stretch& whole, int index, int count) {
  return {whole.first + static_cast<std::uintptr_t>(whole.bytes * index / count), whole.bytes / count};
}

}  // namespace

kernels::Ahead ahead_of(const Problem& problem, const ScoreWay& way, const PanelGroup& group, KeyRange next,
                        Turn turn) {
  Stretch some, others;
  if (next.first < next.last) {
    some = rows_of(way.k, group.batch, group.head / way.key_group, next);
    others = rows_of(problem.v, group.batch, group.head / problem.group, next);
  } else {
    const Panel &first = group.panels.front(), &last = group.panels.back();
    const std::int64_t end = last.first_query + last.queries;
    const Stretch queries = rows_of(way.q, group.batch, group.head, {end, end + end - first.first_query});
    some = part(queries, 0, 2);
    others = part(queries, 1, 2);
  }
  some = part(some, turn.index, turn.count);
  others = part(others, turn.index, turn.count);
  const std::int64_t per_tile = std::int64_t{kernels::Ahead::line} * std::max(turn.tiles, 1);
  return {{some.first, others.first}, static_cast<int>(divide_up(std::max(some.bytes, others.bytes), per_tile))};
}

}  // namespace qkv
