// ops/lines.h: two arrays of one shape, walked together along lines of memory.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/tensor.h>

#include "base/blocks.h"

namespace qkv {

// Axes that lie in the memory of both like one axis are one; a line runs along the last.
class CommonLines {
 public:
  CommonLines(const View& a, const View& b);

  std::int64_t a_stride() const { return axes_.back().a; }
  std::int64_t b_stride() const { return axes_.back().b; }

  // work(i, at_a, at_b, count): from element i on, counted in rows, `count` of them lie along a line; it starts at
  // these distances, in elements, from the first of a and of b. On several threads.
  template <class Work>
  void for_each(Work work) const {
    constexpr std::int64_t block = 1 << 15;  // elements; what is done with fewer is not worth a thread
    const std::int64_t length = axes_.back().extent;
    for_blocks(elements_, block, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count;) {
        const std::int64_t run = std::min(length - i % length, first + count - i);
        const Place place = place_of(i);
        work(i, place.a, place.b, run);
        i += run;
      }
    });
  }

 private:
  struct Axis {
    std::int64_t extent, a, b;
  };
  struct Place {
    std::int64_t a, b;
  };
  Place place_of(std::int64_t i) const;

  std::vector<Axis> axes_;
  std::int64_t elements_;
};

// to = from; the same shape and dtype.
void copy_into(const View& from, const MutableView& to);

}  // namespace qkv
