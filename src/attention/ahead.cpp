// attention/ahead.cpp: finds what is read next, and divides it among panels and tiles.
#include "attention/ahead.h"

#include <algorithm>

#include "base/divide_up.h"

namespace qkv {
namespace {

using kernels::Ahead;

// Keys and values of the next head that are asked for, at most: more would push out what is in hand.
constexpr std::int64_t head_keys = 256;

// Cache lines of a short row, at most: keys, values and queries together have that many streams each.
constexpr std::int64_t short_lines = Ahead::max_streams / 3;

// Some rows of a head. Addresses are numbers: they may lie behind the end of something, as nothing is read.
struct Rows {
  std::uintptr_t first;
  std::int64_t count, bytes, stride;  // of a row, and between rows, in bytes

  bool side_by_side() const { return bytes == stride; }
  // Heads that share a row, of 64 floats at most: the processor sees too little of each to look ahead by itself.
  bool short_and_apart() const { return stride > 2 * bytes && bytes <= short_lines * Ahead::line; }
};

Rows rows_of(const View& view, std::int64_t batch, std::int64_t head, KeyRange range) {
  const auto size = static_cast<std::int64_t>(size_of(view.dtype()));
  const std::int64_t at = batch * view.stride(0) + head * view.stride(1) + range.first * view.stride(2);
  return {reinterpret_cast<std::uintptr_t>(view.data()) + static_cast<std::uintptr_t>(at * size),
          range.last - range.first, view.extent(3) * size, (view.stride(3) == 1 ? view.stride(2) : 0) * size};
}

void add(const Rows& rows, Ahead& ahead) {
  const auto add_stream = [&](std::uintptr_t at, std::int64_t step, std::int64_t lines) {
    ahead.streams[ahead.count++] = {at, step};
    ahead.lines = std::max(ahead.lines, static_cast<int>(lines));
  };
  if (rows.side_by_side()) return add_stream(rows.first, Ahead::line, rows.count * rows.bytes / Ahead::line);
  for (std::int64_t byte = 0; byte < rows.bytes; byte += Ahead::line) {
    add_stream(rows.first + static_cast<std::uintptr_t>(byte), rows.stride, rows.count);
  }
}

}  // namespace

kernels::Ahead ahead_of(const Problem& problem, const ScoreWay& way, const PanelGroup& group, KeyRange next) {
  Ahead ahead;
  const auto keys = [&](std::int64_t batch, std::int64_t head, KeyRange range) {
    return rows_of(way.k, batch, head / way.key_group, range);
  };
  const auto values = [&](std::int64_t batch, std::int64_t head, KeyRange range) {
    return rows_of(problem.v, batch, head / problem.group, range);
  };
  if (next.first < next.last) {
    for (const Rows& rows : {keys(group.batch, group.head, next), values(group.batch, group.head, next)}) {
      if (rows.side_by_side() || rows.short_and_apart()) add(rows, ahead);
    }
    return ahead;
  }
  const Panel &first = group.panels.front(), &last = group.panels.back();
  const std::int64_t end = last.first_query + last.queries, count = end - first.first_query;
  const Rows queries = rows_of(way.q, group.batch, group.head, {end, end + count});
  if (queries.side_by_side()) {
    add(queries, ahead);
    return ahead;
  }
  const bool last_head = group.head + 1 == problem.H;
  const std::int64_t batch = group.batch + (last_head ? 1 : 0), head = last_head ? 0 : group.head + 1;
  if (end < problem.Tq || batch == problem.B) return ahead;
  const KeyRange some{0, std::min(problem.Tk, head_keys)};
  for (const Rows& rows :
       {keys(batch, head, some), values(batch, head, some), rows_of(way.q, batch, head, {0, count})}) {
    if (rows.short_and_apart()) add(rows, ahead);
  }
  return ahead;
}

kernels::Ahead part_of(const kernels::Ahead& ahead, int panel, int panels, int tiles) {
  Ahead part = ahead;
  const auto lines = static_cast<int>(divide_up(ahead.lines, panels));
  for (int i = 0; i < part.count; ++i) {
    part.streams[i].at += static_cast<std::uintptr_t>(part.streams[i].step * lines * panel);
  }
  part.lines = static_cast<int>(divide_up(lines, std::max(tiles, 1)));
  return part;
}

}  // namespace qkv
