// support/support_test.cpp: the tools of the tests can fail: what they should find, they find.
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "reference/elements.h"
#include "support/close.h"
#include "support/covering.h"
#include "support/layout.h"
#include "support/random.h"

namespace qkv::test {
namespace {

TEST(Covering, HasEveryPairOfChoices) {
  const std::vector<int> levels = {5, 2, 3, 7, 4, 1};
  const auto rows = pairwise_rows(levels);
  std::size_t pairs = 0;
  for (std::size_t f = 0; f < levels.size(); ++f) {
    for (std::size_t g = f + 1; g < levels.size(); ++g) {
      std::set<std::pair<int, int>> found;
      for (const auto& row : rows) found.insert({row[f], row[g]});
      EXPECT_EQ(found.size(), static_cast<std::size_t>(levels[f] * levels[g])) << "factors " << f << " and " << g;
      pairs += found.size();
    }
  }
  EXPECT_EQ(pairs, 10u + 15 + 35 + 20 + 5 + 6 + 14 + 8 + 2 + 21 + 12 + 3 + 28 + 7 + 4);
  EXPECT_LT(rows.size(), 2u * 35);
}

TEST(Close, FindsAnElementThatIsOff) {
  const Tensor right = Tensor::of<float>({1, 2, 3}, {3}), wrong = Tensor::of<float>({1, 2, 3.00001f}, {3});
  const Yardstick yardstick{{1, 2, 3}, {1, 2, 3}, 3};
  EXPECT_TRUE(is_close(right, yardstick));
  EXPECT_FALSE(is_close(wrong, yardstick));
}

TEST(Close, AllowsAMultipleOfThePlainError) {
  const Tensor got = Tensor::of<float>({1.003f}, {1});
  EXPECT_TRUE(is_close(got, {{1}, {1.001f}, 1}));
  EXPECT_FALSE(is_close(got, {{1}, {1.0005f}, 1}));
}

TEST(Close, MeasuresFloat64ByItsOwnEpsilon) {
  EXPECT_TRUE(is_close(Tensor::of<double>({1 + 4e-16}, {1}), {{1}, {1}, 4}));
  EXPECT_FALSE(is_close(Tensor::of<double>({1 + 1e-12}, {1}), {{1}, {1}, 4}));
}

TEST(Close, WantsNanWhereItBelongsAndNowhereElse) {
  const double nan = std::nan("");
  EXPECT_TRUE(is_close(Tensor::of<double>({nan}, {1}), {{nan}, {0}, 1}));
  EXPECT_FALSE(is_close(Tensor::of<double>({0}, {1}), {{nan}, {0}, 1}));
  EXPECT_FALSE(is_close(Tensor::of<double>({nan}, {1}), {{0}, {0}, 1}));
}

TEST(Close, WantsInfinitiesEqual) {
  const double infinity = HUGE_VAL;
  EXPECT_TRUE(is_close(Tensor::of<double>({-infinity}, {1}), {{-infinity}, {0}, 1}));
  EXPECT_FALSE(is_close(Tensor::of<double>({-1e300}, {1}), {{-infinity}, {0}, 1}));
}

TEST(Close, CountsUnitsInTheLastPlace) {
  EXPECT_EQ(ulp_distance(1.0f, std::nextafter(1.0f, 2.0f)), 1);
  EXPECT_EQ(ulp_distance(0.0f, -0.0f), 0);
  EXPECT_EQ(ulp_distance(-1e-45f, 1e-45f), 2);
  EXPECT_EQ(ulp_distance(Float16(1.0f), Float16(1.0009765625f)), 1);
}

TEST(Close, SameBitsSeesTheSignOfZero) {
  const Tensor plus = Tensor::of<float>({0.0f}, {1}), minus = Tensor::of<float>({-0.0f}, {1});
  EXPECT_TRUE(same_bits(plus, plus));
  EXPECT_FALSE(same_bits(plus, minus));
}

TEST(Layouts, HoldTheSameNumbers) {
  const Tensor from = random_tensor({2, 3, 4, 5}, 1);
  for (const Layout layout : writable_layouts) {
    const LaidOut copy(from, layout);
    EXPECT_EQ(reference::elements<float>(copy.view()), reference::elements<float>(from)) << name_of(layout);
    EXPECT_TRUE(copy.gaps_are_untouched());
  }
}

TEST(Layouts, NoticeAWriteIntoAGap) {
  const LaidOut padded({1, 1, 2, 3}, Dtype::float32, Layout::padded_rows);
  padded.view().as<float>()[4] = 0;
  EXPECT_FALSE(padded.gaps_are_untouched());
}

TEST(Layouts, ShareTheFirstHeadOrSequence) {
  const Tensor from = random_tensor({2, 3, 4, 5}, 1);
  const LaidOut heads(from, Layout::shared_heads), batch(from, Layout::shared_batch);
  EXPECT_EQ(reference::elements<float>(heads.view().slice(1, 2, 1)),
            reference::elements<float>(from.view().slice(1, 0, 1)));
  EXPECT_EQ(reference::elements<float>(batch.view().slice(0, 1, 1)),
            reference::elements<float>(from.view().slice(0, 0, 1)));
}

}  // namespace
}  // namespace qkv::test
