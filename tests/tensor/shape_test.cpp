// tests/tensor/shape_test.cpp: extents and dense strides.
#include <vector>

#include <gtest/gtest.h>

#include <qkv/tensor.h>

#include "support/errors.h"

namespace qkv::test {
namespace {

constexpr std::int64_t huge = std::int64_t{1} << 40;

TEST(Shape, ItKnowsItsExtentsElementsAndText) {
  const Shape shape = {2, 8, 128, 64};
  EXPECT_EQ(shape.rank(), 4);
  EXPECT_EQ(shape[1], 8);
  EXPECT_EQ(shape.back(), 64);
  EXPECT_EQ(shape.elements(), 2 * 8 * 128 * 64);
  EXPECT_EQ(shape.text(), "[2, 8, 128, 64]");
  EXPECT_EQ(std::vector<std::int64_t>(shape.begin(), shape.end()), (std::vector<std::int64_t>{2, 8, 128, 64}));
}

TEST(Shape, ThatOfANumberHasOneElement) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape().text(), "[]");
}

TEST(Shape, AnExtentOfZeroMeansNoElementsHoweverLargeTheOthers) { EXPECT_EQ(Shape({huge, 0, huge}).elements(), 0); }

TEST(Shape, EqualMeansTheSameRankAndExtents) {
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_NE(Shape({2, 3}), Shape({2, 3, 1}));
  EXPECT_NE(Shape({2, 3}), Shape({3, 2}));
}

TEST(Shape, ARankOverEightIsRefused) {
  expect_error<ShapeError>([] { Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}); }, {"Shape", "rank 9", "more than 8"});
}

TEST(Shape, ANegativeExtentIsRefused) {
  expect_error<ShapeError>([] { Shape({2, -3}); }, {"Shape", "extent -3 of axis 1", "negative"});
}

TEST(Shape, AProductThatOverflowsIsRefused) {
  expect_error<ShapeError>(
      [] {
        (void)Shape({huge, huge}).elements();
      },
      {"[1099511627776, 1099511627776]", "does not fit in 64 bits"});
}

TEST(DenseStrides, TheLastAxisIsTheFastest) {
  const Strides strides = dense_strides({2, 3, 4});
  EXPECT_EQ(strides[0], 12);
  EXPECT_EQ(strides[1], 4);
  EXPECT_EQ(strides[2], 1);
}

TEST(DenseStrides, TheLastAxisOfAnEmptyArrayIsDenseToo) {
  const Strides strides = dense_strides({2, 0, 4});
  EXPECT_EQ(strides[2], 1);
  EXPECT_EQ(strides[1], 4);
}

TEST(DenseStrides, AnOverflowIsRefused) {
  expect_error<ShapeError>(
      [] {
        dense_strides({0, huge, huge});
      },
      {"dense_strides", "[0, 1099511627776, 1099511627776]", "does not fit in 64 bits"});
}

}  // namespace
}  // namespace qkv::test
