// tests/plot/heat_map_test.cpp: matrices as shaded blocks.
#include <qkv/plot.h>

#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plot/terminal_text.h"
#include "support/errors.h"

namespace qkv::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What a terminal shows: the text without its colours.
std::string without_colors(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else {
      result += text[i];
    }
  }
  return result;
}

TEST(HeatMapText, APictureWithLabelsLinesUp) {
  const Tensor weights = Tensor::of<float>({1, 0, 0.5f, 0.5f}, {2, 2});
  EXPECT_EQ(
      heat_map_text(weights, {.title = "Weights", .rows = {"naïve", "a"}, .columns = {"größer", "b"}, .color = false}),
      "Weights\n"
      "        größer  b\n"
      "naïve │████████   │\n"
      "    a │▒▒▒▒▒▒▒▒▒▒▒│\n"
      "       blank ≤ 0   ░ ≤ 0.25   ▒ ≤ 0.5   ▓ ≤ 0.75   █ above\n");
}

TEST(HeatMapText, WithoutLabelsCellsAreTwoColumnsWide) {
  const Tensor values = Tensor::of<double>({0, 0.2, 0.4, 0.6, 0.8, 1}, {2, 3});
  const auto lines = lines_of(heat_map_text(values, {.color = false}));
  EXPECT_EQ(lines[0], "│  ░░▒▒│");
  EXPECT_EQ(lines[1], "│▓▓████│");
}

TEST(HeatMapText, BlankIsForTheLowestValueAlone) {
  const Tensor values = Tensor::of<float>({0, 1e-30f, 0.25f, 0.2500001f, 0.75f, 0.7500001f}, {1, 6});
  EXPECT_EQ(lines_of(heat_map_text(values, {.color = false}))[0], "│  ░░░░▒▒▓▓██│");
}

TEST(HeatMapText, ValuesOutsideTheRangeAreDrawnAsItsEnds) {
  const Tensor values = Tensor::of<float>({-infinity, -5, 5, infinity}, {1, 4});
  EXPECT_EQ(lines_of(heat_map_text(values, {.color = false}))[0], "│    ████│");
}

TEST(HeatMapText, TheRangeCanBeChosenAndTheLegendSaysIt) {
  const Tensor values = Tensor::of<float>({-2, 0, 2}, {1, 3});
  const auto lines = lines_of(heat_map_text(values, {.color = false, .low = -2, .high = 2}));
  EXPECT_EQ(lines[0], "│  ▒▒██│");
  EXPECT_EQ(lines[1], " blank ≤ -2   ░ ≤ -1   ▒ ≤ 0   ▓ ≤ 1   █ above");
}

TEST(HeatMapText, ANanIsAQuestionMarkAndOnlyThenInTheLegend) {
  const std::string text = heat_map_text(Tensor::of<float>({nan, 1}, {1, 2}), {.color = false});
  EXPECT_EQ(lines_of(text)[0], "│? ██│");
  EXPECT_NE(lines_of(text)[1].find("? NaN"), std::string::npos);
  EXPECT_EQ(heat_map_text(Tensor({1, 2}), {.color = false}).find("NaN"), std::string::npos);
}

TEST(HeatMapText, ColoursTakeTheSameRoomAndAreAlwaysTurnedOff) {
  const Tensor values = Tensor::of<float>({0, 0.5f, 1, nan}, {2, 2});
  const std::vector<std::string> labels = {"one", "two"};
  const std::string text = heat_map_text(values, {.rows = labels, .columns = labels});
  for (const std::string& line : lines_of(text)) {
    const std::size_t last = line.rfind("\x1b[");
    EXPECT_TRUE(last == std::string::npos || line.substr(last, 4) == "\x1b[0m") << line;
  }
  const auto colored = lines_of(without_colors(text));
  const auto plain = lines_of(heat_map_text(values, {.rows = labels, .columns = labels, .color = false}));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(columns_of(colored[i]), columns_of(plain[i])) << i;
}

TEST(HeatMapText, ColoursGetDarkerWithTheValue) {
  const auto brightness = [](double value) {
    const std::string text = heat_map_text(Tensor::of<double>({value}, {1, 1}));
    std::istringstream color(text.substr(text.find("48;2;") + 5));
    int red = 0, green = 0, blue = 0;
    char separator = 0;
    color >> red >> separator >> green >> separator >> blue;
    return red + green + blue;
  };
  for (double value = 0; value < 1; value += 0.125) EXPECT_GT(brightness(value), brightness(value + 0.125)) << value;
}

TEST(HeatMapText, AnyStridesAreDrawn) {
  const Tensor values = Tensor::of<float>({0, 1, 1, 0, 0, 0}, {2, 3});
  EXPECT_EQ(lines_of(heat_map_text(values.view().swapped(0, 1), {.color = false}))[1], "│██  │");
}

TEST(HeatMapText, AnEmptyMatrixHasOnlyItsLegend) {
  EXPECT_EQ(lines_of(heat_map_text(Tensor({0, 3}), {.color = false})).size(), 1u);
  EXPECT_EQ(lines_of(heat_map_text(Tensor({2, 0}), {.color = false}))[0], "││");
}

TEST(HeatMapText, HostileLabelsCannotReachTheTerminal) {
  const std::string text =
      heat_map_text(Tensor({1, 1}), {.title = "\x1b[2J", .rows = {"\x07"}, .columns = {"a\nb"}, .color = false});
  EXPECT_EQ(lines_of(text).size(), 4u);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
}

TEST(HeatMapText, WhatIsNoMatrixIsRefused) {
  expect_error<ShapeError>([] { heat_map_text(Tensor({2, 2, 2})); }, {"heat_map_text", "rank 2", "[2, 2, 2]"});
  expect_error<DtypeError>([] { heat_map_text(Tensor({2, 2}, Dtype::int32)); }, {"heat_map_text", "int32", "float64"});
}

TEST(HeatMapText, LabelsOfAnotherCountAreRefused) {
  expect_error<ShapeError>([] { heat_map_text(Tensor({2, 3}), {.rows = {"a"}}); }, {"1 labels for the rows", "[2, 3]"});
  expect_error<ShapeError>(
      [] {
        heat_map_text(Tensor({2, 3}), {.columns = {"a", "b"}});
      },
      {"2 labels for the columns", "[2, 3]"});
}

TEST(HeatMapText, ARangeWithoutExtentIsRefused) {
  for (const double high : {1.0, 0.5, double{nan}, double{infinity}}) {
    expect_error<OptionError>(
        [&] {
          heat_map_text(Tensor({1, 1}), {.low = 1, .high = high});
        },
        {"heat_map_text", "high = ", "must be above low = 1"});
  }
}

}  // namespace
}  // namespace qkv::test
