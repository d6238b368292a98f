// tests/tensor/tensor_test.cpp: arrays that own their memory.
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/tensor.h>

#include "support/errors.h"

namespace qkv::test {
namespace {

template <class T>
std::vector<T> elements_of(const Tensor& tensor) {
  return {tensor.values<T>().begin(), tensor.values<T>().end()};
}

TEST(Tensor, ANewOneIsZeroDenseAndAligned) {
  const Tensor tensor({3, 5}, Dtype::float64);
  EXPECT_TRUE(tensor);
  EXPECT_EQ(tensor.dtype(), Dtype::float64);
  EXPECT_EQ(tensor.shape(), Shape({3, 5}));
  EXPECT_TRUE(tensor.view().is_dense());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data()) % 64, 0u);
  EXPECT_EQ(elements_of<double>(tensor), std::vector<double>(15, 0.0));
}

TEST(Tensor, ALargeOneStartsAtAHugePage) {
  const Tensor tensor({1 << 20});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data()) % (2 << 20), 0u);
}

TEST(Tensor, AnAbsentOneIsFalse) {
  const Tensor tensor;
  EXPECT_FALSE(tensor);
  EXPECT_FALSE(tensor.clone());
  EXPECT_EQ(tensor.elements(), 0);
  expect_error<DtypeError>([&] { (void)tensor.values<float>(); }, {"Tensor::values", "absent", "float32"});
}

TEST(Tensor, AMovedOneLeavesAnAbsentOneBehind) {
  Tensor a = Tensor::of<float>({1, 2}, {2});
  const float* data = a.values<float>().data();
  Tensor b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(b.values<float>().data(), data);
  a = std::move(b);
  EXPECT_EQ(a.values<float>().data(), data);
  EXPECT_FALSE(b);  // NOLINT(bugprone-use-after-move)
}

TEST(Tensor, ACloneHasElementsOfItsOwn) {
  Tensor a = Tensor::of<float>({1, 2}, {2});
  Tensor b = a.clone();
  a.values<float>()[0] = 9;
  EXPECT_EQ(elements_of<float>(b), (std::vector<float>{1, 2}));
}

TEST(Tensor, ACopyOfAnyStridesIsDense) {
  const Tensor a = Tensor::of<std::int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = Tensor::copy_of(a.view().swapped(0, 1));
  EXPECT_EQ(b.shape(), Shape({3, 2}));
  EXPECT_EQ(elements_of<std::int32_t>(b), (std::vector<std::int32_t>{1, 4, 2, 5, 3, 6}));
  const float one = 1;
  EXPECT_EQ(elements_of<float>(Tensor::copy_of(View(&one, {2, 2}, {0, 0}))), (std::vector<float>{1, 1, 1, 1}));
}

TEST(Tensor, ACopyOfANumberIsANumber) {
  const double number = 2.5;
  const Tensor copy = Tensor::copy_of(View(&number, {}));
  EXPECT_EQ(copy.shape(), Shape());
  EXPECT_EQ(elements_of<double>(copy), std::vector<double>{2.5});
}

TEST(Tensor, FloatingElementsConvertInOneRounding) {
  // Halfway between two float16, plus less than float32 can hold: to nearest, and not to even by way of a float32.
  const Tensor wide = Tensor::of<double>({1 + 0x1p-11 + 0x1p-40, -2}, {2});
  const Tensor half = Tensor::copy_of(wide, Dtype::float16);
  EXPECT_EQ(static_cast<float>(half.values<Float16>()[0]), 1 + 0x1p-10f);
  EXPECT_EQ(elements_of<double>(Tensor::copy_of(half, Dtype::float64)), (std::vector<double>{1 + 0x1p-10, -2}));
  const Tensor brain = Tensor::copy_of(Tensor::of<double>({1 + 0x1p-8 + 0x1p-40}, {1}), Dtype::bfloat16);
  EXPECT_EQ(static_cast<float>(brain.values<BFloat16>()[0]), 1 + 0x1p-7f);
  EXPECT_EQ(elements_of<float>(Tensor::copy_of(brain, Dtype::float32)), (std::vector<float>{1 + 0x1p-7f}));
  EXPECT_EQ(elements_of<float>(Tensor::copy_of(Tensor::of<double>({0.1}, {1}), Dtype::float32)),
            (std::vector<float>{0.1f}));
}

TEST(Tensor, IntegersConvertWhereTheyFit) {
  const Tensor lengths = Tensor::of<std::int64_t>({-1, 2147483647}, {2});
  EXPECT_EQ(elements_of<std::int32_t>(Tensor::copy_of(lengths, Dtype::int32)),
            (std::vector<std::int32_t>{-1, 2147483647}));
  expect_error<DtypeError>([] { Tensor::copy_of(Tensor::of<std::int64_t>({2147483648}, {1}), Dtype::int32); },
                           {"Tensor::copy_of", "2147483648", "does not fit in int32"});
}

TEST(Tensor, ConversionsBetweenKindsAreRefusedEvenOfNothing) {
  for (const Shape& shape : {Shape({2}), Shape({0})}) {
    expect_error<DtypeError>([&] { Tensor::copy_of(Tensor(shape), Dtype::int32); },
                             {"float32", "does not convert to int32"});
    expect_error<DtypeError>([&] { Tensor::copy_of(Tensor(shape, Dtype::int64), Dtype::float64); },
                             {"int64", "does not convert to float64"});
    expect_error<DtypeError>([&] { Tensor::copy_of(Tensor(shape, Dtype::boolean), Dtype::int32); },
                             {"boolean", "does not convert to int32"});
  }
}

TEST(Tensor, AReshapedOneHasTheSameMemory) {
  Tensor tensor = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const void* memory = tensor.view().data();
  const Tensor other = std::move(tensor).reshaped({6});
  EXPECT_EQ(other.shape(), Shape{6});
  EXPECT_EQ(other.view().data(), memory);
  EXPECT_FALSE(tensor);  // NOLINT: what it is after the move is what is tested
  expect_error<ShapeError>([] { Tensor({2, 3}).reshaped({5}); }, {"reshaped", "[2, 3]", "6", "[5]", "5"});
}

TEST(Tensor, LargeMemoryThatWasNotZeroedIsUsedAgainAndZerosAreZeros) {
  const Shape large{3, 1024, 1024};
  Tensor first = Tensor::uninitialized(large, Dtype::float32);
  const void* memory = first.view().data();
  first.values<float>()[5] = 7;
  first = Tensor();
  const Tensor zeros(large);
  EXPECT_EQ(zeros.values<float>()[5], 0);
  EXPECT_EQ(Tensor::uninitialized(large, Dtype::float32).view().data(), memory);
}

TEST(Tensor, ElementsOfAnotherDtypeAreRefused) {
  const Tensor tensor({2});
  expect_error<DtypeError>([&] { (void)tensor.values<double>(); },
                           {"Tensor::values", "the elements are float32, not float64"});
}

TEST(Tensor, SizesThatOverflowAreRefused) {
  const std::int64_t half = std::int64_t{1} << 62;
  expect_error<ShapeError>([&] { Tensor({half, 2}); }, {"[4611686018427387904, 2]", "does not fit in 64 bits"});
  expect_error<ShapeError>([&] { Tensor({half}, Dtype::float64); }, {"size in bytes", "4611686018427387904 * 8"});
}

TEST(Tensor, ItIsAViewAndAMutableViewWhereOneIsWanted) {
  Tensor tensor({4});
  const auto first = [](View view) { return view.as<float>()[0]; };
  const auto set_first = [](MutableView view) { view.as<float>()[0] = 3; };
  set_first(tensor);
  EXPECT_EQ(first(tensor), 3);
  EXPECT_EQ(first(std::as_const(tensor)), 3);
}

}  // namespace
}  // namespace qkv::test
