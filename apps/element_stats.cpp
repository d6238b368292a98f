// apps/element_stats.cpp: what the elements of an array are like.
#include "element_stats.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace qkv::apps {
namespace {

// What elements are compared as: whole numbers stay exact.
template <class T>
using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

template <class T>
Wide<T> widened(T element) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<Wide<T>>(element);
  } else {
    return static_cast<double>(static_cast<float>(element));
  }
}

template <class T>
ElementStats stats_of(View dense) {
  ElementStats stats;
  std::int64_t finite = 0;
  double sum = 0;
  Wide<T> min = {}, max = {};
  for (std::int64_t i = 0; i < dense.elements(); ++i) {
    const Wide<T> element = widened(dense.as<T>()[i]);
    if constexpr (std::is_floating_point_v<Wide<T>>) {
      stats.nan += std::isnan(element) ? 1 : 0;
      stats.infinite += std::isinf(element) ? 1 : 0;
      if (!std::isfinite(element)) continue;
    }
    min = finite == 0 ? element : std::min(min, element);
    max = finite == 0 ? element : std::max(max, element);
    sum += static_cast<double>(element);
    ++finite;
  }
  if (finite > 0) {
    stats.min = min;
    stats.max = max;
    stats.mean = sum / static_cast<double>(finite);
  }
  return stats;
}

}  // namespace

ElementStats element_stats(View dense) {
  switch (dense.dtype()) {
    case Dtype::float32:
      return stats_of<float>(dense);
    case Dtype::float64:
      return stats_of<double>(dense);
    case Dtype::float16:
      return stats_of<Float16>(dense);
    case Dtype::bfloat16:
      return stats_of<BFloat16>(dense);
    case Dtype::boolean:
      return stats_of<bool>(dense);
    case Dtype::int32:
      return stats_of<std::int32_t>(dense);
    case Dtype::int64:
      return stats_of<std::int64_t>(dense);
  }
  return {};
}

}  // namespace qkv::apps
