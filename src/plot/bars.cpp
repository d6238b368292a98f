// plot/bars.cpp: a matrix as horizontal bars for a terminal.
#include <qkv/plot.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include <qkv/error.h>

#include "base/message.h"
#include "plot/matrix.h"
#include "plot/terminal_text.h"

namespace qkv {
namespace {

constexpr int widest_bar = 200;
constexpr std::string_view bar_color = "\x1b[38;2;70;130;190m", no_color = "\x1b[0m";

// The last column of a bar is filled to an eighth. Whatever is above 0 has at least that much, so that what got nothing
// can be told from what got little.
constexpr std::string_view eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
constexpr int parts = static_cast<int>(std::size(eighths));

std::string bar_of(double share, int width) {
  const int filled = static_cast<int>(std::lround(share * width * parts));
  const int length = share > 0 ? std::max(filled, 1) : 0;
  std::string text;
  for (int i = 0; i < length / parts; ++i) text += "█";
  return message(text, eighths[length % parts]);
}

// Two decimals; exactly nothing is written as 0, little as 0.00.
std::string number_of(double value) {
  if (std::isnan(value)) return "";
  if (value == 0) return "0";
  char text[std::numeric_limits<double>::max_exponent10 + 8];
  return std::string(text, std::to_chars(text, std::end(text), value, std::chars_format::fixed, 2).ptr);
}

class Bars {
 public:
  Bars(View matrix, const BarsOptions& options)
      : matrix_(matrix), options_(options), rows_(clean_labels(options.rows)), columns_(clean_labels(options.columns)) {
    for (const std::string& label : rows_) margin_ = std::max(margin_, columns_of(label) + 1);
    for (const std::string& label : columns_) cell_ = std::max(cell_, columns_of(label) + 1);
    for (std::int64_t row = 0; row < matrix.extent(0); ++row) {
      for (std::int64_t column = 0; column < matrix.extent(1); ++column) {
        digits_ = std::max(digits_, columns_of(number_of(element(matrix, row, column))));
      }
    }
    cell_ = std::max(cell_, options.width + 1 + digits_);
  }

  std::string text() const {
    std::string text;
    if (!options_.title.empty()) text += clean(options_.title, longest_title) + "\n";
    if (!columns_.empty()) text += heading() + "\n";
    for (std::int64_t row = 0; row < matrix_.extent(0); ++row) text += line(row) + "\n";
    return text;
  }

 private:
  static constexpr std::string_view gap = "  ";

  std::string heading() const {
    std::string text(static_cast<std::size_t>(margin_), ' ');
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      text += message(i > 0 ? gap : "", " ", padded(columns_[i], cell_, 0));
    }
    text.resize(text.find_last_not_of(' ') + 1);
    return text;
  }

  std::string line(std::int64_t row) const {
    std::string text = rows_.empty() ? "" : padded(rows_[static_cast<std::size_t>(row)] + " ", margin_, 1);
    for (std::int64_t column = 0; column < matrix_.extent(1); ++column) {
      const bool last = column == matrix_.extent(1) - 1;
      text += message(column > 0 ? gap : "", "│", cell(element(matrix_, row, column), last ? 0 : cell_));
    }
    return text;
  }

  std::string cell(double value, int width) const {
    const double share = std::isnan(value) ? 0 : std::clamp(value / options_.high, 0.0, 1.0);
    const std::string bar = std::isnan(value) ? "?" : bar_of(share, options_.width);
    const std::string rest =
        padded("", options_.width - columns_of(bar), 0) + " " + padded(number_of(value), digits_, 1);
    const std::string after = padded("", width - columns_of(bar) - columns_of(rest), 0);
    return options_.color && share > 0 ? message(bar_color, bar, no_color, rest, after) : bar + rest + after;
  }

  const View matrix_;
  const BarsOptions& options_;
  const std::vector<std::string> rows_, columns_;
  int margin_ = 0;  // the columns before the first bar: the longest label and a space
  int digits_ = 1;  // the columns of the longest number
  int cell_ = 0;    // the columns of a bar and its number
};

}  // namespace

std::string bars_text(View matrix, const BarsOptions& options) {
  constexpr std::string_view operation = "bars_text";
  require_matrix(matrix, operation);
  require_labels(matrix, options.rows, options.columns, operation);
  if (!(options.high > 0) || !std::isfinite(options.high)) {
    throw OptionError(message(operation, ": high = ", options.high, " must be above 0 and finite"));
  }
  if (options.width < 1 || options.width > widest_bar) {
    throw OptionError(message(operation, ": width = ", options.width, " must be from 1 to ", widest_bar));
  }
  return Bars(matrix, options).text();
}

}  // namespace qkv
