// kernels/mass_test.cpp: the sums of the columns of weights.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block.h"
#include "kernels/block_data.h"

namespace qkv::test {
namespace {

template <class T>
class Mass : public testing::Test {
 protected:
  static std::vector<int> lanes() {
    std::vector<int> all;
    for (int vectors = 1; vectors <= 4; ++vectors) all.push_back(vectors * vector());
    return all;
  }
  static int vector() { return kernels::panel_kernels<T>(current_isa()).vector; }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Mass, Types);

TYPED_TEST(Mass, OfEveryKeyGrowsByItsWeightsTimesTheirFactors) {
  for_every_block(this->lanes, [](int lanes, int keys) {
    const int vector = Mass<TypeParam>::vector();
    const auto weights = random_numbers<TypeParam>(lanes * keys, 1);
    const auto factors = random_numbers<TypeParam>(lanes, 2);
    auto mass = random_numbers<TypeParam>(vector * keys, 3);
    const auto before = mass;
    kernels::weigh_kernels<TypeParam>(current_isa()).mass({weights.data(), lanes, keys, factors.data(), mass.data()});
    for (int j = 0; j < keys; ++j) {
      for (int i = 0; i < vector; ++i) {
        const auto at = static_cast<std::size_t>(j * vector + i);
        double sum = static_cast<double>(before[at]), sizes = std::abs(sum);
        for (int r = i; r < lanes; r += vector) {
          const double term = static_cast<double>(weights[place(lanes, j, r)]) *
                              static_cast<double>(factors[static_cast<std::size_t>(r)]);
          sum += term;
          sizes += std::abs(term);
        }
        // Each product and each sum rounds by half an epsilon of at most all sizes together.
        const double roundings = 2.0 * lanes / vector;
        ASSERT_NEAR(static_cast<double>(mass[at]), sum, roundings / 2 * epsilon<TypeParam> * sizes);
      }
    }
  });
}

TYPED_TEST(Mass, NanReachesItsKeyAndLaneAndNoOther) {
  for_every_block(this->lanes, [](int lanes, int keys) {
    if (keys == 0) return;
    const int vector = Mass<TypeParam>::vector();
    Aligned<TypeParam> weights(place(lanes, keys, 0), TypeParam(1)), factors(static_cast<std::size_t>(lanes), 1),
        mass(place(vector, keys, 0), TypeParam(0));
    weights[place(lanes, keys / 2, lanes - 1)] = nan<TypeParam>;
    kernels::weigh_kernels<TypeParam>(current_isa()).mass({weights.data(), lanes, keys, factors.data(), mass.data()});
    for (std::size_t i = 0; i < mass.size(); ++i) {
      const TypeParam expected =
          i == place(vector, keys / 2, vector - 1) ? nan<TypeParam> : static_cast<TypeParam>(lanes / vector);
      ASSERT_TRUE(same_number(mass[i], expected)) << i;
    }
  });
}

}  // namespace
}  // namespace qkv::test
