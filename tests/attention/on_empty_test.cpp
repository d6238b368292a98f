// attention/on_empty_test.cpp: what a query gets that may see no key.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Ways to see nothing, for a problem with B = 2: sequence 1 sees no key, sequence 0 sees all.
struct Nothing {
  std::int64_t Tq, Tk;
  Tensor lens = Tensor::of<std::int64_t>({Tk, 0}, {2});
  Tensor kept = Tensor({2, 1, 1, 1}, Dtype::boolean), dropped = Tensor({2, 1, 1, 1}, Dtype::boolean);
  Tensor keys = Tensor({2, Tk}, Dtype::boolean);
  Tensor added = Tensor({2, 1, 1, 1});
  Tensor offsets = Tensor::of<std::int64_t>({Tk, -Tq}, {2});
  Nothing(std::int64_t queries, std::int64_t n) : Tq(queries), Tk(n) {
    kept.values<bool>()[0] = true;
    dropped.values<bool>()[1] = true;
    for (std::size_t j = 0; j < static_cast<std::size_t>(Tk); ++j) keys.values<bool>()[j] = true;
    added.values<float>()[1] = -infinity;
  }
  std::vector<Mask> masks() const {
    return {lengths(lens), keep(kept), drop(dropped), keep_keys(keys), bias(added), causal(offset(offsets))};
  }
};

TEST(OnEmpty, EveryAnswerIsRightForEveryWayToSeeNothing) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 4, 5, 30}) {
      for (const std::int64_t Tk : {1, 9, 300}) {
        const Nothing nothing(Tq, Tk);
        const Tensor q = random_tensor({2, 2, Tq, 8}, 1), k = random_tensor({2, 1, Tk, 8}, 2),
                     v = random_tensor({2, 1, Tk, 5}, 3);
        for (const Mask& mask : nothing.masks()) {
          for (const OnEmpty answer : {OnEmpty::zero, OnEmpty::uniform, OnEmpty::nan}) {
            expect_right(q, k, v,
                         {.mask = mask,
                          .on_empty = answer,
                          .want_lse = true,
                          .want_weights = true,
                          .want_scores = ScoreStage::biased});
          }
        }
      }
    }
  });
}

TEST(OnEmpty, ZeroIsExactlyZero) {
  on_every_isa([] {
    for (const std::int64_t Tq : {2, 30}) {
      const Nothing nothing(Tq, 9);
      const Tensor q = random_tensor({2, 1, Tq, 8}, 1), k = random_tensor({2, 1, 9, 8}, 2),
                   v = random_tensor({2, 1, 9, 5}, 3);
      for (const Mask& mask : nothing.masks()) {
        const Attended got = attend(q, k, v, {.mask = mask, .want_lse = true});
        for (const float x : got.out.values<float>().subspan(static_cast<std::size_t>(Tq) * 5)) ASSERT_EQ(x, 0);
        for (const float x : got.lse.values<float>().subspan(static_cast<std::size_t>(Tq))) ASSERT_EQ(x, -infinity);
      }
    }
  });
}

TEST(OnEmpty, ErrorNamesTheFirstQueryThatSeesNothing) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 30}) {
      const Tensor q = random_tensor({2, 2, Tq, 8}, 1), k = random_tensor({2, 1, 40, 8}, 2),
                   v = random_tensor({2, 1, 40, 5}, 3);
      Tensor lens({2, Tq}, Dtype::int64);
      std::ranges::fill(lens.values<std::int64_t>(), 40);
      const AttendOptions options = {.mask = lengths(lens), .on_empty = OnEmpty::error};
      EXPECT_NO_THROW(attend(q, k, v, options));
      lens.values<std::int64_t>()[static_cast<std::size_t>(Tq) + 2] = 0;  // sequence 1, query 2; heads 0 and 1
      for (const int threads : {1, 3}) {
        AttendOptions again = options;
        again.threads = threads;
        expect_error<OptionError>([&] { attend(q, k, v, again); },
                                  {"attend", "no key", "query 2", "sequence 1", "head 0"});
      }
    }
  });
}

TEST(OnEmpty, ErrorIsThrownWhereThereAreNoKeysAtAll) {
  const Tensor q = random_tensor({1, 1, 3, 8}, 1), k({1, 1, 0, 8}), v({1, 1, 0, 5});
  expect_error<OptionError>([&] { attend(q, k, v, {.on_empty = OnEmpty::error}); }, {"attend", "no key", "query 0"});
}

TEST(OnEmpty, NoKeysAtAllGiveWhatOnEmptySays) {
  on_every_isa([] {
    for (const std::int64_t Tq : {2, 30}) {
      const Tensor q = random_tensor({1, 2, Tq, 8}, 1), k({1, 1, 0, 8}), v({1, 1, 0, 5});
      for (const OnEmpty answer : {OnEmpty::zero, OnEmpty::uniform, OnEmpty::nan}) {
        const Attended got = attend(q, k, v, {.on_empty = answer, .want_lse = true, .want_weights = true});
        for (const float x : got.out.values<float>()) {
          ASSERT_EQ(std::isnan(x), answer == OnEmpty::nan);
          if (answer != OnEmpty::nan) {
            ASSERT_EQ(x, 0);
          }
        }
        for (const float x : got.lse.values<float>()) ASSERT_EQ(x, -infinity);
        EXPECT_EQ(got.weights.elements(), 0);
      }
    }
  });
}

TEST(OnEmpty, UniformIsTheMeanOfAllValuesPaddingIncluded) {
  on_every_isa([] {
    for (const std::int64_t Tq : {2, 30}) {
      const Tensor q = random_tensor({Tq, 8}, 1), k = random_tensor({4, 8}, 2),
                   v = Tensor::of<float>({1, 2, 3, 6}, {4, 1});
      const Tensor lens = Tensor::of<std::int64_t>({0}, {1});
      const Attended got = attend(q, k, v, {.mask = lengths(lens), .on_empty = OnEmpty::uniform, .want_weights = true});
      for (const float x : got.out.values<float>()) ASSERT_FLOAT_EQ(x, 3);
      for (const float x : got.weights.values<float>()) ASSERT_EQ(x, 0.25f);
    }
  });
}

}  // namespace
}  // namespace qkv::test
