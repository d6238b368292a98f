// ops/reduce.cpp: sums over axes, in an order that threads do not change.
#include "ops/reduce.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/blocks.h"
#include "base/divide_up.h"
#include "kernels/arithmetic.h"

namespace qkv {
namespace {

struct Axis {
  std::int64_t extent, stride;
};

// Axes, the last one fastest. Neighbours that lie in memory like one axis are one.
class Axes {
 public:
  void append(Axis axis) {
    if (axis.extent == 1) return;
    if (!axes_.empty() && axes_.back().stride == axis.extent * axis.stride) {
      axes_.back() = {axes_.back().extent * axis.extent, axis.stride};
    } else {
      axes_.push_back(axis);
    }
  }
  // The last axis, which is walked along; the others are jumped between.
  Axis last() const { return axes_.empty() ? Axis{1, 0} : axes_.back(); }
  std::int64_t total() const {
    std::int64_t product = 1;
    for (const Axis& axis : axes_) product *= axis.extent;
    return product;
  }
  std::int64_t offset(std::int64_t index) const {
    std::int64_t offset = 0;
    for (auto axis = axes_.rbegin(); axis != axes_.rend(); ++axis) {
      offset += index % axis->extent * axis->stride;
      index /= axis->extent;
    }
    return offset;
  }

 private:
  std::vector<Axis> axes_;
};

constexpr std::int64_t chunk = 512;  // of outputs; their sums stay in the first-level cache

// The sums of `count` outputs from `first` on, over summands from .. to - 1.
template <class T>
void sum_chunk(const T* x, const Axes& kept, const Axes& reduced, std::int64_t first, std::int64_t count,
               std::int64_t from, std::int64_t to, double* sums) {
  const Axis along_kept = kept.last(), along_reduced = reduced.last();
  // Walks along whichever axis lies closer together.
  if (along_kept.extent > 1 && std::abs(along_kept.stride) <= std::abs(along_reduced.stride)) {
    for (std::int64_t o = first; o < first + count;) {
      const std::int64_t line = std::min(along_kept.extent - o % along_kept.extent, first + count - o);
      const T* line_x = x + kept.offset(o);
      for (std::int64_t r = from; r < to;) {
        const std::int64_t lines = std::min(along_reduced.extent - r % along_reduced.extent, to - r);
        kernels::add_lines<T>(
            {sums + (o - first), line_x + reduced.offset(r), along_reduced.stride, along_kept.stride, lines, line});
        r += lines;
      }
      o += line;
    }
  } else {
    for (std::int64_t o = first; o < first + count; ++o) {
      const T* summands = x + kept.offset(o);
      for (std::int64_t r = from; r < to;) {
        const std::int64_t line = std::min(along_reduced.extent - r % along_reduced.extent, to - r);
        sums[o - first] += kernels::sum(summands + reduced.offset(r), along_reduced.stride, line);
        r += line;
      }
    }
  }
}

// Summands are cut into ranges whose number depends on the shape alone; a range's sums are added in the order of the
// ranges.
template <class T>
void reduce(const T* x, const Axes& kept, const Axes& reduced, double factor, T* result) {
  constexpr std::int64_t elements_a_range = 1 << 16, most_ranges = 16;
  const std::int64_t outputs = kept.total(), summands = reduced.total();
  const std::int64_t wanted = std::min({outputs * summands / elements_a_range + 1, most_ranges, summands});
  const std::int64_t range = divide_up(summands, wanted), ranges = divide_up(summands, range);
  const std::int64_t chunks = divide_up(outputs, chunk);
  std::vector<double> sums(static_cast<std::size_t>(outputs * ranges), 0.0);
  const std::int64_t worth = std::max<std::int64_t>(1, elements_a_range / 2 / (std::min(chunk, outputs) * range));
  for_blocks(chunks * ranges, worth, [&](std::int64_t first_task, std::int64_t tasks) {
    for (std::int64_t task = first_task; task < first_task + tasks; ++task) {
      const std::int64_t r = task / chunks, first = task % chunks * chunk;
      sum_chunk(x, kept, reduced, first, std::min(chunk, outputs - first), r * range,
                std::min(summands, (r + 1) * range), sums.data() + r * outputs + first);
    }
  });
  for (std::int64_t o = 0; o < outputs; ++o) {
    double sum = 0;
    for (std::int64_t r = 0; r < ranges; ++r) sum += sums[static_cast<std::size_t>(r * outputs + o)];
    result[o] = static_cast<T>(sum * factor);
  }
}

}  // namespace

Tensor reduce_sum(const View& x, const AxisFlags& reduced, const Shape& shape, double factor) {
  Tensor result(shape, x.dtype());
  if (result.elements() == 0) return result;
  Axes kept_axes, reduced_axes;
  for (int axis = 0; axis < x.rank(); ++axis) {
    (reduced[static_cast<std::size_t>(axis)] ? reduced_axes : kept_axes).append({x.extent(axis), x.stride(axis)});
  }
  if (reduced_axes.total() == 0) {
    // 0 times a factor, which is infinite for a mean: the mean of nothing is NaN.
    for (std::int64_t i = 0; i < result.elements(); ++i) {
      if (x.dtype() == Dtype::float64) {
        result.values<double>()[static_cast<std::size_t>(i)] = 0 * factor;
      } else {
        result.values<float>()[static_cast<std::size_t>(i)] = static_cast<float>(0 * factor);
      }
    }
  } else if (x.dtype() == Dtype::float64) {
    reduce(x.as<double>(), kept_axes, reduced_axes, factor, result.values<double>().data());
  } else {
    reduce(x.as<float>(), kept_axes, reduced_axes, factor, result.values<float>().data());
  }
  return result;
}

Tensor reduce_to(Tensor gradient, const Shape& shape) {
  if (gradient.shape() == shape) return gradient;
  AxisFlags repeated = {};
  const int more = gradient.shape().rank() - shape.rank();
  for (int axis = 0; axis < gradient.shape().rank(); ++axis) {
    repeated[static_cast<std::size_t>(axis)] = axis < more || shape[axis - more] != gradient.shape()[axis];
  }
  return reduce_sum(gradient, repeated, shape);
}

}  // namespace qkv
