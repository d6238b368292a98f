// ops/lines.cpp: two arrays of one shape, walked together along lines of memory.
#include "ops/lines.h"

#include <algorithm>
#include <cstring>

namespace qkv {

CommonLines::CommonLines(const View& a, const View& b) : elements_(a.elements()) {
  for (int i = 0; i < a.rank(); ++i) {
    const Axis next = {a.extent(i), a.stride(i), b.stride(i)};
    if (next.extent == 1) continue;
    if (!axes_.empty() && axes_.back().a == next.extent * next.a && axes_.back().b == next.extent * next.b) {
      axes_.back() = {axes_.back().extent * next.extent, next.a, next.b};
    } else {
      axes_.push_back(next);
    }
  }
  if (axes_.empty()) axes_.push_back({1, 1, 1});
}

CommonLines::Place CommonLines::place_of(std::int64_t i) const {
  Place place = {0, 0};
  for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
    const std::int64_t at = i % axis->extent;
    place.a += at * axis->a;
    place.b += at * axis->b;
    i /= axis->extent;
  }
  return place;
}

void copy_into(const View& from, const MutableView& to) {
  const CommonLines lines(from, to);
  const auto copy = [&]<class T>(T) {
    lines.for_each([&](std::int64_t, std::int64_t at_from, std::int64_t at_to, std::int64_t count) {
      const T* source = from.as<T>() + at_from;
      T* target = to.as<T>() + at_to;
      if (lines.a_stride() == 1 && lines.b_stride() == 1) {
        std::memcpy(target, source, static_cast<std::size_t>(count) * sizeof(T));
      } else {
        for (std::int64_t i = 0; i < count; ++i) target[i * lines.b_stride()] = source[i * lines.a_stride()];
      }
    });
  };
  from.dtype() == Dtype::float64 ? copy(0.0) : copy(0.0f);
}

}  // namespace qkv
