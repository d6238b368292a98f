// attention/alignment_test.cpp: where a query stands among the keys.
#include <limits>

#include <gtest/gtest.h>

#include "support/close.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

struct Tensors {
  Tensor q, k, v;
  Tensors(std::int64_t B, std::int64_t Tq, std::int64_t Tk)
      : q(random_tensor({B, 2, Tq, 8}, 1)), k(random_tensor({B, 2, Tk, 8}, 2)), v(random_tensor({B, 2, Tk, 8}, 3)) {}
  Tensor ask(const Mask& mask) const { return attend(q, k, v, {.mask = mask}).out; }
};

TEST(Alignment, TopLeftIsOffsetZero) {
  for (const std::int64_t Tq : {3, 20}) {
    const Tensors t(2, Tq, 33);
    EXPECT_TRUE(same_bits(t.ask(causal(top_left())), t.ask(causal(offset(0)))));
  }
}

TEST(Alignment, BottomRightIsOffsetTkMinusTq) {
  for (const std::int64_t Tq : {3, 20}) {
    const Tensors t(2, Tq, 33);
    EXPECT_TRUE(same_bits(t.ask(causal(bottom_right())), t.ask(causal(offset(33 - Tq)))));
  }
}

TEST(Alignment, BottomRightWithLengthsIsLengthMinusTqPerSequence) {
  for (const std::int64_t Tq : {3, 20}) {
    const Tensors t(3, Tq, 33);
    const Tensor lens = Tensor::of<std::int32_t>({33, 21, 7}, {3});
    const Tensor offsets = Tensor::of<std::int64_t>({33 - Tq, 21 - Tq, 7 - Tq}, {3});
    EXPECT_TRUE(
        same_bits(t.ask(lengths(lens) & causal(bottom_right())), t.ask(lengths(lens) & causal(offset(offsets)))));
  }
}

TEST(Alignment, WithAsManyQueriesAsKeysNothingNeedBeSaid) {
  const Tensors t(1, 33, 33);
  EXPECT_TRUE(same_bits(t.ask(causal()), t.ask(causal(top_left()))));
  EXPECT_TRUE(same_bits(t.ask(window(3, 0)), t.ask(window(3, 0, bottom_right()))));
}

TEST(Alignment, OnePartNamesItForAll) {
  const Tensors t(2, 20, 33);
  const Tensor slopes = Tensor::of<float>({0.5f, 0.25f}, {2});
  EXPECT_TRUE(
      same_bits(t.ask(causal(bottom_right()) & alibi(slopes)), t.ask(causal() & alibi(slopes, bottom_right()))));
  EXPECT_TRUE(
      same_bits(t.ask(causal(bottom_right()) & window(4, -1)), t.ask(causal() & window(4, -1, bottom_right()))));
}

TEST(Alignment, TheSameNameTwiceIsNoConflict) {
  const Tensors t(2, 20, 33);
  const Tensor offsets = Tensor::of<std::int64_t>({1, 5}, {2});
  for (const Alignment& a : {top_left(), bottom_right(), offset(3), offset(offsets)}) {
    EXPECT_TRUE(same_bits(t.ask(causal(a) & window(4, -1, a)), t.ask(causal(a) & window(4, -1))));
  }
}

TEST(Alignment, OffsetsBeyondTheKeysSeeAllOrNothing) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 20}) {
      const Tensors t(2, Tq, 33);
      const Tensor everything = t.ask({});
      const Tensor nothing({2, 2, Tq, 8});
      const std::int64_t most = std::numeric_limits<std::int64_t>::max(),
                         least = std::numeric_limits<std::int64_t>::min();
      for (const std::int64_t far : {std::int64_t{1000}, std::int64_t{1} << 40, most}) {
        EXPECT_TRUE(same_bits(t.ask(causal(offset(far))), everything)) << far;
        EXPECT_TRUE(same_bits(t.ask(causal(offset(-far))), nothing)) << far;
        EXPECT_TRUE(same_bits(t.ask(window(far, far, top_left())), everything)) << far;
        EXPECT_TRUE(same_bits(t.ask(window(0, 0, offset(far))), nothing)) << far;
      }
      EXPECT_TRUE(same_bits(t.ask(causal(offset(least))), nothing));
    }
  });
}

TEST(Alignment, ANegativeNumberInAWindowIsNoLimit) {
  for (const std::int64_t Tq : {3, 20}) {
    const Tensors t(2, Tq, 33);
    EXPECT_TRUE(same_bits(t.ask(window(-1, -1, top_left())), t.ask({})));
    EXPECT_TRUE(same_bits(t.ask(window(-1, 0, bottom_right())), t.ask(causal(bottom_right()))));
  }
}

TEST(Alignment, AWindowOfOneKeyGivesThatKeysValue) {
  on_every_isa([] {
    const Tensors t(1, 33, 33);
    EXPECT_TRUE(same_bits(t.ask(window(0, 0)), t.v));
  });
}

TEST(Alignment, EveryOffsetAroundTheDiagonalIsRight) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 26}) {
      const Tensors t(1, Tq, 40);
      for (std::int64_t o = -30; o <= 45; ++o) {
        SCOPED_TRACE("offset " + std::to_string(o));
        expect_right(t.q, t.k, t.v, {.mask = causal(offset(o)), .want_lse = true});
        expect_right(t.q, t.k, t.v, {.mask = window(5, 2, offset(o)), .want_lse = true});
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
