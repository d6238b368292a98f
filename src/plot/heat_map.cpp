// plot/heat_map.cpp: a matrix as shaded blocks for a terminal.
#include <qkv/plot.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <qkv/error.h>

#include "base/message.h"
#include "plot/matrix.h"
#include "plot/terminal_text.h"

namespace qkv {
namespace {

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

// Blank is for the lowest value alone, so that what got nothing can be told from what got little.
constexpr std::string_view shades[] = {" ", "░", "▒", "▓", "█"};
constexpr int steps = static_cast<int>(std::size(shades)) - 1;

std::string_view shade(double share) { return shades[static_cast<int>(std::ceil(share * steps))]; }

// From nearly white over a middle blue to a dark one: the lightness falls evenly, so a grey print shows the same order.
struct Color {
  double red, green, blue;
};
constexpr std::array<Color, 3> scale = {{{244, 248, 255}, {96, 158, 214}, {8, 36, 92}}};
constexpr std::string_view nan_color = "\x1b[48;2;250;215;160m\x1b[30m";
constexpr std::string_view no_color = "\x1b[0m";

std::string background(double share) {
  const double place = share * (scale.size() - 1);
  const std::size_t below = std::min(static_cast<std::size_t>(place), scale.size() - 2);
  const double part = place - static_cast<double>(below);
  const auto mixed = [&](double Color::*channel) {
    return std::lround(scale[below].*channel + part * (scale[below + 1].*channel - scale[below].*channel));
  };
  return message("\x1b[48;2;", mixed(&Color::red), ";", mixed(&Color::green), ";", mixed(&Color::blue), "m");
}

class HeatMap {
 public:
  HeatMap(View matrix, const HeatMapOptions& options)
      : matrix_(matrix), options_(options), rows_(clean_labels(options.rows)), columns_(clean_labels(options.columns)) {
    for (const std::string& label : rows_) margin_ = std::max(margin_, columns_of(label) + 1);
  }

  std::string text() {
    std::string text;
    if (!options_.title.empty()) text += clean(options_.title, longest_title) + "\n";
    if (!columns_.empty()) text += heading() + "\n";
    for (std::int64_t row = 0; row < matrix_.extent(0); ++row) text += line(row) + "\n";
    return text + indent() + legend() + "\n";
  }

 private:
  std::string indent() const { return std::string(static_cast<std::size_t>(margin_), ' '); }

  // Two columns are about as wide as a line is high.
  int width(std::size_t column) const { return columns_.empty() ? 2 : columns_of(columns_[column]) + 2; }

  std::string heading() const {
    std::string text = indent() + " ";
    for (std::size_t i = 0; i < columns_.size(); ++i) text += padded(columns_[i], width(i), 0.5);
    text.resize(text.find_last_not_of(' ') + 1);
    return text;
  }

  std::string line(std::int64_t row) {
    std::string text = rows_.empty() ? "" : padded(rows_[static_cast<std::size_t>(row)] + " ", margin_, 1);
    text += "│";
    for (std::int64_t column = 0; column < matrix_.extent(1); ++column) {
      text += cell(element(matrix_, row, column), width(static_cast<std::size_t>(column)));
    }
    return text + "│";
  }

  std::string cell(double value, int width_of_cell) {
    if (std::isnan(value)) {
      has_nan_ = true;
      const std::string mark = padded("?", width_of_cell, 0.5);
      return options_.color ? message(nan_color, mark, no_color) : mark;
    }
    const double share = std::clamp((value - options_.low) / (options_.high - options_.low), 0.0, 1.0);
    return options_.color ? message(background(share), repeated(" ", width_of_cell), no_color)
                          : repeated(shade(share), width_of_cell);
  }

  std::string legend() const {
    const auto value = [&](double share) { return message(options_.low + share * (options_.high - options_.low)); };
    std::string text = " ";
    if (options_.color) {
      constexpr int samples = 16;
      text += value(0) + " ";
      for (int i = 0; i < samples; ++i) text += background(static_cast<double>(i) / (samples - 1)) + " ";
      text += message(no_color, " ", value(1));
    } else {
      text += "blank ≤ " + value(0);
      for (int i = 1; i < steps; ++i) text += message("   ", shades[i], " ≤ ", value(static_cast<double>(i) / steps));
      text += message("   ", shades[steps], " above");
    }
    return has_nan_ ? text + "   ? NaN" : text;
  }

  const View matrix_;
  const HeatMapOptions& options_;
  const std::vector<std::string> rows_, columns_;
  int margin_ = 0;  // the columns before the matrix: the longest label and a space
  bool has_nan_ = false;
};

}  // namespace

std::string heat_map_text(View matrix, const HeatMapOptions& options) {
  require_matrix(matrix, "heat_map_text");
  require_labels(matrix, options.rows, options.columns, "heat_map_text");
  if (!(options.high > options.low) || !std::isfinite(options.high - options.low)) {
    throw OptionError(
        message("heat_map_text: high = ", options.high, " must be above low = ", options.low, ", and both finite"));
  }
  return HeatMap(matrix, options).text();
}

}  // namespace qkv
