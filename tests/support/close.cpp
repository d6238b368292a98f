// support/close.cpp: when a computed result counts as right.
#include "support/close.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "reference/elements.h"

namespace qkv::test {

namespace {

constexpr double float32_rounding = 0x1p-24;  // half a unit in the last place of 1
constexpr double float64_per_float32 = 0x1p-53 / 0x1p-24;

// Half the distance to the next number of a storage type: relative for normal ones, fixed for subnormal ones.
double storage_rounding(Dtype dtype, double value) {
  if (dtype == Dtype::float16) return std::max(std::abs(value) * 0x1p-11, 0x1p-25);
  if (dtype == Dtype::bfloat16) return std::abs(value) * 0x1p-8;
  return 0;
}

std::string index_text(const Shape& shape, std::int64_t flat) {
  std::string text = "]";
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    text = (axis > 0 ? ", " : "[") + std::to_string(flat % shape[axis]) + text;
    flat /= shape[axis];
  }
  return text;
}

}  // namespace

testing::AssertionResult is_close(const View& got, const Yardstick& yardstick, double multiple) {
  const std::vector<double> values = reference::elements<double>(got);
  const std::vector<double>& exact = yardstick.exact;
  if (values.size() != exact.size()) {
    return testing::AssertionFailure() << values.size() << " elements where the reference has " << exact.size();
  }
  double plain_error = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(static_cast<double>(yardstick.plain[i]) - exact[i]);
    if (std::isfinite(error)) plain_error = std::max(plain_error, error);
  }
  double allowed = multiple * plain_error + 2 * float32_rounding * yardstick.magnitude;
  // The double reference rounds as the float64 result does, so both may be off.
  if (got.dtype() == Dtype::float64) allowed *= 2 * float64_per_float32;

  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double here = allowed + storage_rounding(got.dtype(), std::abs(exact[i]) + allowed);
    const bool right = std::isnan(exact[i])   ? std::isnan(values[i])
                       : std::isinf(exact[i]) ? values[i] == exact[i]
                                              : std::abs(values[i] - exact[i]) <= here;
    if (!right) {
      return testing::AssertionFailure() << "element " << index_text(got.shape(), static_cast<std::int64_t>(i))
                                         << " of " << got.shape().text() << " is " << values[i] << ", exactly "
                                         << exact[i] << "; off by " << std::abs(values[i] - exact[i]) << ", allowed "
                                         << here << " (the plain float32 error is " << plain_error << ")";
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult same_bits(const View& a, const View& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) {
    return testing::AssertionFailure() << name_of(a.dtype()) << a.shape().text() << " against " << name_of(b.dtype())
                                       << b.shape().text();
  }
  if (!a.is_dense() || !b.is_dense()) return testing::AssertionFailure() << "same_bits takes dense arrays";
  const std::size_t size = size_of(a.dtype());
  const auto *x = static_cast<const std::byte*>(a.data()), *y = static_cast<const std::byte*>(b.data());
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    if (std::memcmp(x + static_cast<std::size_t>(i) * size, y + static_cast<std::size_t>(i) * size, size) != 0) {
      return testing::AssertionFailure() << "element " << index_text(a.shape(), i) << " of " << a.shape().text()
                                         << " differs: " << reference::element(a, i) << " against "
                                         << reference::element(b, i);
    }
  }
  return testing::AssertionSuccess();
}

std::int64_t ulp_distance(float a, float b) {
  // Sign and magnitude become a number line: negative numbers count downwards from 0.
  const auto on_line = [](float x) -> std::int64_t {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto magnitude = static_cast<std::int64_t>(bits & 0x7fffffffu);
    return (bits >> 31) != 0 ? -magnitude : magnitude;
  };
  return std::abs(on_line(a) - on_line(b));
}

std::int64_t ulp_distance(Float16 a, Float16 b) {
  const auto on_line = [](Float16 x) -> std::int64_t {
    const std::int64_t magnitude = x.bits & 0x7fff;
    return (x.bits >> 15) != 0 ? -magnitude : magnitude;
  };
  return std::abs(on_line(a) - on_line(b));
}

double largest_magnitude(const View& view) {
  double largest = 0;
  for (const double x : reference::elements<double>(view)) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  return largest;
}

}  // namespace qkv::test
