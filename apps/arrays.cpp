// apps/arrays.cpp: arrays from files, and arrays for people to read.
#include "arrays.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include <qkv/io.h>

namespace qkv::apps {
namespace {

std::vector<std::string> texts_of(View array) {
  std::vector<std::string> texts;
  const bool floating = is_floating(array.dtype());
  const Tensor wide = Tensor::copy_of(array, floating ? Dtype::float64 : Dtype::int64);
  if (floating) {
    for (const double number : wide.values<double>()) texts.push_back(text_of_number(number));
  } else {
    for (const std::int64_t number : wide.values<std::int64_t>()) texts.push_back(std::to_string(number));
  }
  return texts;
}

// "[1, 0]": the place of a matrix along the axes before its own two.
std::string place_of(std::int64_t matrix, const Shape& shape) {
  std::string text;
  for (int axis = shape.rank() - 3; axis >= 0; --axis) {
    text.insert(0, std::to_string(matrix % shape[axis]) + (text.empty() ? "" : ", "));
    matrix /= shape[axis];
  }
  return "[" + text + "]";
}

}  // namespace

std::string text_of_number(double number, int digits) {
  if (std::isnan(number)) return "nan";
  std::array<char, 32> text = {};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number == 0 ? 0 : number,
                                          std::chars_format::general, digits);
  return {text.data(), end};
}

Tensor read_array(const std::filesystem::path& path, Elements elements, Vector vector) {
  return is_text_file(path) ? read_text_array(path, elements, vector) : read_npy(path);
}

std::string text_of(View array, std::string_view name) {
  const std::vector<std::string> texts = texts_of(array);
  if (texts.empty()) return "";
  const int rank = array.rank();
  const auto columns = static_cast<std::size_t>(rank < 1 ? 1 : array.extent(rank - 1));
  const auto rows = static_cast<std::size_t>(rank < 2 ? 1 : array.extent(rank - 2));
  std::vector<std::size_t> widths(columns);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    widths[i % columns] = std::max(widths[i % columns], texts[i].size());
  }
  std::string result;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::size_t column = i % columns;
    if (rank > 2 && i % (rows * columns) == 0) {
      if (i > 0) result += "\n";
      result +=
          "# " + std::string(name) + place_of(static_cast<std::int64_t>(i / (rows * columns)), array.shape()) + "\n";
    }
    if (column > 0) result += "  ";
    result += std::string(widths[column] - texts[i].size(), ' ') + texts[i];
    if (column == columns - 1) result += "\n";
  }
  return result;
}

}  // namespace qkv::apps
