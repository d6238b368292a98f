// tests/plot/bars_test.cpp: matrices as horizontal bars.
#include <qkv/plot.h>

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/errors.h"

namespace qkv::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

// The bars of one column of numbers, four columns wide.
std::string bars_of(const std::vector<float>& values) {
  return bars_text(View(values, {static_cast<std::int64_t>(values.size()), 1}), {.color = false, .width = 4});
}

TEST(BarsText, APictureWithLabelsLinesUp) {
  const Tensor weights = Tensor::of<float>({1, 0.25f, 0, 0.5f}, {2, 2});
  EXPECT_EQ(
      bars_text(
          weights,
          {.title = "Weights", .rows = {"naïve", "a"}, .columns = {"exact", "größer"}, .color = false, .width = 4}),
      "Weights\n"
      "       exact       größer\n"
      "naïve │████ 1.00  │█    0.25\n"
      "    a │        0  │██   0.50\n");
}

TEST(BarsText, WithoutLabelsThereAreOnlyBars) { EXPECT_EQ(bars_of({0.5f, 1}), "│██   0.50\n│████ 1.00\n"); }

TEST(BarsText, ABarEndsAtAnEighthOfAColumn) {
  EXPECT_EQ(bars_of({0.28125f}), "│█▏   0.28\n");
  EXPECT_EQ(bars_of({0.46875f}), "│█▉   0.47\n");
}

TEST(BarsText, LittleCanBeToldFromNothing) { EXPECT_EQ(bars_of({1e-30f, 0}), "│▏    0.00\n│        0\n"); }

TEST(BarsText, WhatIsBeyondTheEndsIsDrawnAsTheEnds) {
  EXPECT_EQ(bars_of({-3, 3, infinity, -infinity}), "│     -3.00\n│████  3.00\n│████   inf\n│      -inf\n");
}

TEST(BarsText, ANanIsAQuestionMark) { EXPECT_EQ(bars_of({nan, 1}), "│?        \n│████ 1.00\n"); }

TEST(BarsText, AFullBarMeansWhatIsSaid) {
  EXPECT_EQ(bars_text(Tensor::of<double>({5}, {1, 1}), {.color = false, .high = 10, .width = 2}), "│█  5.00\n");
}

TEST(BarsText, ALongHeadingMovesTheNextColumn) {
  EXPECT_EQ(
      bars_text(Tensor::of<double>({1, 1}, {1, 2}), {.columns = {"a long heading", "b"}, .color = false, .width = 1}),
      " a long heading    b\n"
      "│█ 1.00           │█ 1.00\n");
}

TEST(BarsText, ColoursTakeTheSameRoomAndAreTurnedOff) {
  const Tensor values = Tensor::of<float>({0, 0.5f, 1, nan}, {2, 2});
  std::string text = bars_text(values);
  EXPECT_NE(text.find("\x1b[38;2;"), std::string::npos);
  for (std::size_t begin = 0; (begin = text.find('\x1b')) != std::string::npos;) {
    text.erase(begin, text.find('m', begin) + 1 - begin);
  }
  EXPECT_EQ(text, bars_text(values, {.color = false}));
}

TEST(BarsText, AnyStridesAreDrawn) {
  const Tensor values = Tensor::of<float>({0, 1}, {1, 2});
  EXPECT_EQ(bars_text(values.view().swapped(0, 1), {.color = false, .width = 4}), "│        0\n│████ 1.00\n");
}

TEST(BarsText, AnEmptyMatrixHasNoBars) {
  EXPECT_EQ(bars_text(Tensor({0, 3})), "");
  EXPECT_EQ(bars_text(Tensor({2, 0})), "\n\n");
}

TEST(BarsText, HostileLabelsCannotReachTheTerminal) {
  const std::string text =
      bars_text(Tensor({1, 1}), {.title = "\x1b[2J", .rows = {"\x07"}, .columns = {"a\nb"}, .color = false});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
  EXPECT_NE(text.find("a�b"), std::string::npos);
}

TEST(BarsText, WhatCannotBeDrawnIsRefused) {
  expect_error<ShapeError>([] { bars_text(Tensor({2})); }, {"bars_text", "rank 2", "[2]"});
  expect_error<DtypeError>([] { bars_text(Tensor({2, 2}, Dtype::int64)); }, {"bars_text", "int64"});
  expect_error<ShapeError>([] { bars_text(Tensor({2, 3}), {.rows = {"a"}}); }, {"1 labels for the rows", "[2, 3]"});
  expect_error<ShapeError>([] { bars_text(Tensor({2, 3}), {.columns = {"a"}}); }, {"1 labels for the columns"});
  for (const double high : {0.0, -1.0, double{nan}, double{infinity}}) {
    expect_error<OptionError>([&] { bars_text(Tensor({1, 1}), {.high = high}); }, {"bars_text: high = ", "above 0"});
  }
  for (const int width : {0, -1, 201}) {
    expect_error<OptionError>([&] { bars_text(Tensor({1, 1}), {.width = width}); }, {"width = ", "from 1 to 200"});
  }
}

}  // namespace
}  // namespace qkv::test
