// bench/tape.cpp: data and comparisons of benchmarks of the tape.
#include "bench/tape.h"

#include <algorithm>
#include <cmath>

#include "base/message.h"
#include "bench/data.h"

namespace qkv::bench {

Tensor filled(const Shape& shape, std::uint64_t seed, double size) {
  Tensor tensor(shape);
  fill(tensor.values<float>(), seed, static_cast<float>(size));
  return tensor;
}

std::string compare(const char* name, const View& got, const std::vector<double>& right, double terms) {
  double largest = 0;
  for (const double x : right) largest = std::max(largest, std::abs(x));
  const double tolerance = largest * 0x1p-22 * std::sqrt(terms);
  for (std::size_t i = 0; i < right.size(); ++i) {
    const auto value = static_cast<double>(got.as<float>()[i]);
    if (!(std::abs(value - right[i]) <= tolerance)) {
      return message(name, " [", i, "] is ", value, ", not ", right[i]);
    }
  }
  return {};
}

std::string first_of(std::initializer_list<std::string> all) {
  for (const std::string& text : all) {
    if (!text.empty()) return text;
  }
  return {};
}

}  // namespace qkv::bench
