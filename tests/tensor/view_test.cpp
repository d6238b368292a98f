// tests/tensor/view_test.cpp: windows on memory.
#include <array>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/tensor.h>

#include "support/errors.h"

namespace qkv::test {
namespace {

std::vector<float> counting(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

// The elements in the order of their indices.
std::vector<float> elements_of(View view) {
  const Tensor dense = Tensor::copy_of(view);
  const auto values = dense.values<float>();
  return {values.begin(), values.end()};
}

TEST(View, AnAbsentOneIsFalseAndHasNoElements) {
  const View absent;
  EXPECT_FALSE(absent);
  EXPECT_EQ(absent.data(), nullptr);
  EXPECT_EQ(absent.rank(), 0);
  EXPECT_EQ(absent.elements(), 0);
}

TEST(View, PointersContainersAndSpansAreSeenInPlace) {
  std::vector<float> values = counting(6);
  const std::array<double, 2> pair = {1, 2};
  EXPECT_EQ(View(values.data(), {2, 3}).data(), values.data());
  EXPECT_EQ(View(values, {2, 3}).data(), values.data());
  EXPECT_EQ(View(std::span<const float>(values), {6}).data(), values.data());
  EXPECT_EQ(View(pair, {2}).dtype(), Dtype::float64);
  MutableView(values, {6}).as<float>()[0] = 7;
  EXPECT_EQ(values[0], 7);
}

TEST(View, AContainerOfAnotherCountIsRefused) {
  const std::vector<float> values = counting(5);
  expect_error<ShapeError>([&] { View(values, {2, 3}); }, {"View", "5 elements", "[2, 3]", "which has 6"});
}

TEST(View, ANullPointerIsRefusedUnlessThereAreNoElements) {
  const float* nothing = nullptr;
  expect_error<ShapeError>([&] { View(nothing, {2, 3}); }, {"View", "null pointer", "[2, 3]"});
  EXPECT_TRUE(View(nothing, {2, 0}));
}

TEST(View, StridesThatReachTooFarAreRefused) {
  const float value = 0;
  const std::int64_t far = std::numeric_limits<std::int64_t>::max() / 4;
  EXPECT_TRUE(View(&value, {2}, {far - 1}));
  for (const Strides& strides :
       {Strides{far + 1}, Strides{-far - 1}, Strides{std::numeric_limits<std::int64_t>::min()}}) {
    expect_error<ShapeError>([&] { View(&value, {2}, strides); }, {"View", "float32", "[2]", "64 bits"});
  }
  expect_error<ShapeError>([&] { View(&value, {3, 3}, {far / 2, far / 2}); }, {"View", "[3, 3]", "64 bits"});
  expect_error<ShapeError>([&] { View(&value, {std::int64_t{1} << 62}); },
                           {"View", "[4611686018427387904]", "64 bits"});
}

TEST(View, DenseMeansRowMajorWithoutGaps) {
  const std::vector<float> values = counting(12);
  EXPECT_TRUE(View(values.data(), {3, 4}).is_dense());
  EXPECT_TRUE(View(values.data(), {1, 4}, {99, 1}).is_dense());  // the stride of a single index does not matter
  EXPECT_TRUE(View(values.data(), {3, 0}, {7, 5}).is_dense());
  EXPECT_FALSE(View(values.data(), {3, 2}, {4, 1}).is_dense());
  EXPECT_FALSE(View(values.data(), {3, 4}).swapped(0, 1).is_dense());
  EXPECT_FALSE(View(values.data(), {3}, {0}).is_dense());
}

TEST(View, SwappedAxesExchangeTheirExtentsAndStrides) {
  const std::vector<float> values = counting(6);
  const View swapped = View(values, {2, 3}).swapped(0, 1);
  EXPECT_EQ(swapped.shape(), Shape({3, 2}));
  EXPECT_EQ(elements_of(swapped), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST(View, ASliceStartsWhereItSays) {
  const std::vector<float> values = counting(12);
  const View view(values, {3, 4});
  EXPECT_EQ(elements_of(view.slice(1, 1, 2)), (std::vector<float>{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(elements_of(view.slice(0, 2, 1)), (std::vector<float>{8, 9, 10, 11}));
  EXPECT_EQ(view.slice(0, 3, 0).shape(), Shape({0, 4}));
}

TEST(View, ASliceOfAReversedAxisGoesBackwards) {
  const std::vector<float> values = counting(4);
  const View reversed(values.data() + 3, {4}, {-1});
  EXPECT_EQ(elements_of(reversed), (std::vector<float>{3, 2, 1, 0}));
  EXPECT_EQ(elements_of(reversed.slice(0, 1, 2)), (std::vector<float>{2, 1}));
}

TEST(View, ASplitAxisTakesHeadsApart) {
  const std::vector<float> values = counting(12);
  const View view = View(values, {2, 6}).split(1, 3);
  EXPECT_EQ(view.shape(), Shape({2, 3, 2}));
  EXPECT_EQ(elements_of(view), values);
  EXPECT_EQ(elements_of(view.swapped(0, 1)), (std::vector<float>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
  const View columns = View(values, {6, 2}).swapped(0, 1).split(1, 2);
  EXPECT_EQ(elements_of(columns), (std::vector<float>{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}));
}

TEST(View, AxesThatAreNotThereAreRefused) {
  const std::vector<float> values = counting(6);
  const View view(values, {2, 3});
  expect_error<ShapeError>([&] { (void)view.swapped(0, 2); }, {"View::swapped", "no axis 2", "[2, 3]"});
  expect_error<ShapeError>([&] { (void)view.slice(-1, 0, 1); }, {"View::slice", "no axis -1", "[2, 3]"});
  expect_error<ShapeError>([&] { (void)view.split(5, 1); }, {"View::split", "no axis 5", "[2, 3]"});
}

TEST(View, ASliceOutsideIsRefused) {
  const std::vector<float> values = counting(6);
  const View view(values, {2, 3});
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  expect_error<ShapeError>([&] { (void)view.slice(1, 2, 2); },
                           {"View::slice", "2 elements from 2", "axis 1", "[2, 3]"});
  expect_error<ShapeError>([&] { (void)view.slice(1, -1, 1); }, {"View::slice", "1 elements from -1"});
  expect_error<ShapeError>([&] { (void)view.slice(1, 1, -1); }, {"View::slice", "-1 elements from 1"});
  expect_error<ShapeError>([&] { (void)view.slice(1, 1, largest); }, {"View::slice", "outside axis 1"});
}

TEST(View, ASplitThatLeavesARestIsRefused) {
  const std::vector<float> values = counting(6);
  const View view(values, {2, 3});
  expect_error<ShapeError>([&] { (void)view.split(1, 2); }, {"View::split", "axis 1", "[2, 3]", "2 equal parts"});
  expect_error<ShapeError>([&] { (void)view.split(1, 0); }, {"View::split", "0 equal parts"});
  const View full(values.data(), {1, 1, 1, 1, 1, 1, 1, 6});
  expect_error<ShapeError>([&] { (void)full.split(7, 2); }, {"rank 9", "more than 8"});
}

}  // namespace
}  // namespace qkv::test
