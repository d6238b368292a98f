// support/layout.cpp: the same numbers in memory that is laid out in other ways.
#include "support/layout.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace qkv::test {

namespace {

constexpr std::byte gap{0xFF};

// Calls visit(b, h, t, d) for every index.
template <class Visit>
void for_each_index(const Shape& shape, Visit visit) {
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t t = 0; t < shape[2]; ++t)
        for (std::int64_t d = 0; d < shape[3]; ++d) visit(b, h, t, d);
}

std::int64_t distance(const View& view, std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d) {
  return b * view.stride(0) + h * view.stride(1) + t * view.stride(2) + d * view.stride(3);
}

struct Placement {
  Strides strides = {};
  std::int64_t first = 0;  // where the element with indices 0 stands
  std::int64_t size = 0;   // elements of memory, gaps included
};

Placement place(const Shape& shape, Layout layout) {
  const std::int64_t B = shape[0], H = shape[1], T = shape[2], D = shape[3];
  const std::int64_t last = std::max<std::int64_t>(D - 1, 0), rows = std::max<std::int64_t>(T - 1, 0);
  switch (layout) {
    case Layout::dense:
      return {{H * T * D, T * D, D, 1}, 0, B * H * T * D};
    case Layout::heads_inside:
      return {{T * H * D, D, H * D, 1}, 0, B * H * T * D};
    case Layout::padded_rows: {
      const std::int64_t row = D + 3;
      return {{H * T * row, T * row, row, 1}, 0, B * H * T * row};
    }
    case Layout::spread:
      return {{2 * H * T * D, 2 * T * D, 2 * D, 2}, 0, 2 * B * H * T * D};
    case Layout::reversed_rows:
      return {{H * T * D, T * D, -D, 1}, rows * D, B * H * T * D};
    case Layout::reversed_last:
      return {{H * T * D, T * D, D, -1}, last, B * H * T * D};
    case Layout::shared_heads:
      return {{T * D, 0, D, 1}, 0, B * T * D};
    case Layout::shared_batch:
      return {{0, T * D, D, 1}, 0, H * T * D};
    case Layout::unaligned:
      return {{H * T * D, T * D, D, 1}, 1, B * H * T * D + 1};
  }
  throw std::logic_error("place: a layout that does not exist");
}

}  // namespace

std::string_view name_of(Layout layout) {
  switch (layout) {
    case Layout::dense:
      return "dense";
    case Layout::heads_inside:
      return "heads_inside";
    case Layout::padded_rows:
      return "padded_rows";
    case Layout::spread:
      return "spread";
    case Layout::reversed_rows:
      return "reversed_rows";
    case Layout::reversed_last:
      return "reversed_last";
    case Layout::shared_heads:
      return "shared_heads";
    case Layout::shared_batch:
      return "shared_batch";
    case Layout::unaligned:
      return "unaligned";
  }
  throw std::logic_error("name_of: a layout that does not exist");
}

LaidOut::LaidOut(const Shape& shape, Dtype dtype, Layout layout) {
  const Placement placement = place(shape, layout);
  const std::size_t size = size_of(dtype);
  memory_.assign((static_cast<std::size_t>(placement.size) + 1) * size, gap);
  view_ =
      MutableView(memory_.data() + static_cast<std::size_t>(placement.first) * size, dtype, shape, placement.strides);
}

LaidOut::LaidOut(View from, Layout layout) : LaidOut(from.shape(), from.dtype(), layout) {
  const std::size_t size = size_of(from.dtype());
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* target = static_cast<std::byte*>(view_.data());
  for_each_index(from.shape(), [&](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d) {
    if ((view_.stride(0) == 0 && b > 0) || (view_.stride(1) == 0 && h > 0)) return;
    std::memcpy(target + distance(view_, b, h, t, d) * static_cast<std::int64_t>(size),
                source + distance(from, b, h, t, d) * static_cast<std::int64_t>(size), size);
  });
}

bool LaidOut::gaps_are_untouched() const {
  std::vector<std::byte> rest = memory_;
  const auto size = static_cast<std::int64_t>(size_of(view_.dtype()));
  const std::int64_t first = static_cast<std::byte*>(view_.data()) - memory_.data();
  for_each_index(view_.shape(), [&](std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t d) {
    const std::int64_t start = first + distance(view_, b, h, t, d) * size;
    std::fill_n(rest.begin() + start, size, gap);
  });
  return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == gap; });
}

}  // namespace qkv::test
