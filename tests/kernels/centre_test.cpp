// kernels/centre_test.cpp: a row about a centre, and the square of its length.
#include <cmath>

#include <gtest/gtest.h>

#include "kernels/block_data.h"
#include "kernels/rows.h"

namespace qkv::test {
namespace {

template <class T>
class Centre : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Centre, Types);

template <class T>
void expect_centred(int count, bool with_factors) {
  const auto source = random_numbers<T>(count, 1);
  const auto centre = random_numbers<T>(count, 2), factors = random_numbers<T>(count, 3);
  const T factor = T(0.75);
  Aligned<T> target(static_cast<std::size_t>(count));
  const T* by = with_factors ? factors.data() : nullptr;
  const T square = kernels::row_kernels<T>().centred(source.data(), centre.data(), by, factor, count, target.data());
  double sum = 0;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const double x = (static_cast<double>(source[i]) - static_cast<double>(centre[i])) *
                     (with_factors ? static_cast<double>(factors[i]) : 1);
    sum += x * x;
    // A difference and two products.
    ASSERT_NEAR(static_cast<double>(target[i]), x * static_cast<double>(factor), 2 * epsilon<T> * std::abs(x)) << i;
  }
  // Each square has two roundings, and sums add at most as many as there are terms.
  ASSERT_NEAR(static_cast<double>(square), sum, (count + 4) * epsilon<T> * sum);
  // In the centre's place.
  Aligned<T> same(centre.begin(), centre.end());
  ASSERT_EQ(square, kernels::row_kernels<T>().centred(source.data(), same.data(), by, factor, count, same.data()));
  ASSERT_EQ(same, target);
}

TYPED_TEST(Centre, IsTakenFromARow) {
  on_every_isa([] {
    for (const int count : {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
      for (const bool with_factors : {false, true}) expect_centred<TypeParam>(count, with_factors);
    }
  });
}

TYPED_TEST(Centre, ANanReachesTheSquareWhereverItIs) {
  on_every_isa([] {
    for (std::size_t i = 0; i < 19; ++i) {
      Aligned<TypeParam> source(19, TypeParam(2)), centre(19, TypeParam(1)), target(19);
      const auto square = [&] {
        return kernels::row_kernels<TypeParam>().centred(source.data(), centre.data(), nullptr, TypeParam(1), 19,
                                                         target.data());
      };
      EXPECT_EQ(square(), TypeParam(19));
      source[i] = nan<TypeParam>;
      EXPECT_TRUE(std::isnan(square())) << i;
    }
  });
}

}  // namespace
}  // namespace qkv::test
