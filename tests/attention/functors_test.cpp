// attention/functors_test.cpp: your own functions on blocks of scores and of decisions.
#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "support/close.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr std::int64_t few_and_many[] = {1, 4, 5, 60};

struct Tensors {
  Tensor q, k, v;
  explicit Tensors(std::int64_t Tq, std::int64_t Tk = 300, Dtype dtype = Dtype::float32)
      : q(random_tensor({2, 4, Tq, 8}, 1, dtype)),
        k(random_tensor({2, 2, Tk, 8}, 2, dtype)),
        v(random_tensor({2, 2, Tk, 8}, 3, dtype)) {}
};

TEST(Functors, AnEditThatAddsIsABias) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensors t(Tq);
      const Tensor added = random_tensor({2, 4, Tq, 300}, 4);
      const float* values = added.values<float>().data();
      const auto add = [&](const ScoreBlock<float>& block) {
        for (std::int64_t j = 0; j < block.keys; ++j) {
          for (std::int64_t i = 0; i < block.queries; ++i) {
            const std::int64_t query = block.first_query + i, key = block.first_key + j;
            block.at(i, j) += values[((block.batch * 4 + block.head) * Tq + query) * 300 + key];
          }
        }
      };
      expect_right(t.q, t.k, t.v,
                   {.mask = edit_by(add), .want_lse = true, .want_weights = true, .want_scores = ScoreStage::biased});
    }
  });
}

TEST(Functors, EveryPairIsShownOnce) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensors t(Tq);
      std::vector<std::atomic<int>> shown(static_cast<std::size_t>(2 * 4 * Tq * 300));
      const auto count = [&](const ScoreBlock<float>& block) {
        for (std::int64_t j = 0; j < block.keys; ++j) {
          for (std::int64_t i = 0; i < block.queries; ++i) {
            const std::int64_t query = block.first_query + i, key = block.first_key + j;
            ++shown[static_cast<std::size_t>(((block.batch * 4 + block.head) * Tq + query) * 300 + key)];
          }
        }
      };
      attend(t.q, t.k, t.v, {.mask = edit_by(count), .threads = 2});
      for (const auto& times : shown) ASSERT_EQ(times, 1);
    }
  });
}

TEST(Functors, AnEditComesAfterSoftcapAndBeforeBias) {
  const Tensors t(7);
  const auto twice = []<class T>(const ScoreBlock<T>& block) {
    for (std::int64_t j = 0; j < block.keys; ++j) {
      for (std::int64_t i = 0; i < block.queries; ++i) block.at(i, j) *= 2;
    }
  };
  const Tensor added = random_tensor({7, 300}, 4);
  expect_right(t.q, t.k, t.v,
               {.softcap = 0.5, .mask = bias(added) & edit_by(twice), .want_scores = ScoreStage::biased});
  expect_right(t.q, t.k, t.v,
               {.softcap = 0.5, .mask = bias(added) & edit_by(twice), .want_scores = ScoreStage::capped});
}

TEST(Functors, EditsRunInTheOrderOfTheMask) {
  for (const std::int64_t Tq : few_and_many) {
    const Tensors t(Tq);
    const auto change = []<class T>(const ScoreBlock<T>& block, T factor, T added) {
      for (std::int64_t j = 0; j < block.keys; ++j) {
        for (std::int64_t i = 0; i < block.queries; ++i) block.at(i, j) = block.at(i, j) * factor + added;
      }
    };
    const auto twice = [&]<class T>(const ScoreBlock<T>& block) {
      change(block, static_cast<T>(2), static_cast<T>(0));
    };
    const auto more = [&]<class T>(const ScoreBlock<T>& block) { change(block, static_cast<T>(1), static_cast<T>(3)); };
    expect_right(t.q, t.k, t.v, {.mask = edit_by(twice) & edit_by(more), .want_lse = true});
    expect_right(t.q, t.k, t.v, {.mask = edit_by(more) & edit_by(twice), .want_lse = true});
  }
}

TEST(Functors, AnEditToMinusInfinityIsAScoreNotAnExclusion) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensors t(Tq);
      const auto sink = [](const ScoreBlock<float>& block) {
        for (std::int64_t j = 0; j < block.keys; ++j) {
          for (std::int64_t i = 0; i < block.queries; ++i) block.at(i, j) = -std::numeric_limits<float>::infinity();
        }
      };
      const Attended got = attend(t.q, t.k, t.v, {.mask = edit_by(sink)});
      for (const float x : got.out.values<float>()) ASSERT_TRUE(std::isnan(x));
    }
  });
}

TEST(Functors, AnEditDoesNotBringBackWhatTheMaskExcludes) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensors t(Tq);
      const auto hundred = []<class T>(const ScoreBlock<T>& block) {
        for (std::int64_t j = 0; j < block.keys; ++j) {
          for (std::int64_t i = 0; i < block.queries; ++i)
            block.at(i, j) = static_cast<T>(100 + (block.first_key + j) % 3);
        }
      };
      expect_right(t.q, t.k, t.v,
                   {.mask = causal(bottom_right()) & edit_by(hundred), .want_lse = true, .want_weights = true});
    }
  });
}

TEST(Functors, AFunctionOfFloat64GetsFloat64) {
  for (const std::int64_t Tq : few_and_many) {
    const Tensors t(Tq, 40, Dtype::float64);
    const auto add = [](const ScoreBlock<double>& block) {
      for (std::int64_t j = 0; j < block.keys; ++j) {
        for (std::int64_t i = 0; i < block.queries; ++i)
          block.at(i, j) += 1e-9 * static_cast<double>(block.first_key + j);
      }
    };
    expect_right(t.q, t.k, t.v, {.mask = edit_by(add), .want_lse = true, .want_scores = ScoreStage::biased});
  }
}

TEST(Functors, ADecisionByPairIsAKeepMask) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensors t(Tq);
      const Tensor kept = random_booleans({2, 4, Tq, 300}, 4, 0.5);
      const bool* values = kept.values<bool>().data();
      const auto look_up = [&](const KeepBlock& block) {
        for (std::int64_t j = 0; j < block.keys; ++j) {
          for (std::int64_t i = 0; i < block.queries; ++i) {
            const std::int64_t query = block.first_query + i, key = block.first_key + j;
            block.at(i, j) = values[((block.batch * 4 + block.head) * Tq + query) * 300 + key];
          }
        }
        return Kept::some;
      };
      const Attended by_function = attend(t.q, t.k, t.v, {.mask = keep_by(look_up), .want_lse = true});
      const Attended by_mask = attend(t.q, t.k, t.v, {.mask = keep(kept), .want_lse = true});
      EXPECT_TRUE(same_bits(by_function.out, by_mask.out));
      EXPECT_TRUE(same_bits(by_function.lse, by_mask.lse));
    }
  });
}

TEST(Functors, TheAnswersAllAndNoneNeedNoFilling) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensors t(Tq);
      const auto all = [](const KeepBlock&) { return Kept::all; };
      const auto none = [](const KeepBlock&) { return Kept::none; };
      EXPECT_TRUE(same_bits(attend(t.q, t.k, t.v, {.mask = keep_by(all)}).out, attend(t.q, t.k, t.v).out));
      const Attended nothing = attend(t.q, t.k, t.v, {.mask = keep_by(none), .want_lse = true});
      for (const float x : nothing.out.values<float>()) ASSERT_EQ(x, 0);
      for (const float x : nothing.lse.values<float>()) ASSERT_EQ(x, -std::numeric_limits<float>::infinity());
    }
  });
}

TEST(Functors, BlocksStayInsideTheProblem) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensors t(Tq, 270);
      std::atomic<bool> inside = true;
      const auto look = [&](const KeepBlock& block) {
        if (block.batch < 0 || block.batch >= 2 || block.head < 0 || block.head >= 4 || block.first_query < 0 ||
            block.queries < 1 || block.first_query + block.queries > Tq || block.first_key < 0 || block.keys < 1 ||
            block.first_key + block.keys > 270 || block.stride < block.queries) {
          inside = false;
        }
        return Kept::all;
      };
      attend(t.q, t.k, t.v, {.mask = keep_by(look) & causal(bottom_right())});
      EXPECT_TRUE(inside);
    }
  });
}

TEST(Functors, AnExceptionReachesTheCaller) {
  const Tensors t(60);
  const auto fail_edit = [](const ScoreBlock<float>& block) {
    if (block.head == 3) throw std::domain_error("head 3 is not for sale");
  };
  const auto fail_keep = [](const KeepBlock& block) -> Kept {
    if (block.batch == 1) throw std::domain_error("no second sequence");
    return Kept::all;
  };
  for (const int threads : {1, 3}) {
    expect_error<std::domain_error>([&] { attend(t.q, t.k, t.v, {.mask = edit_by(fail_edit), .threads = threads}); },
                                    {"head 3"});
    expect_error<std::domain_error>([&] { attend(t.q, t.k, t.v, {.mask = keep_by(fail_keep), .threads = threads}); },
                                    {"second"});
    EXPECT_NO_THROW(attend(t.q, t.k, t.v, {.threads = threads}));
  }
}

}  // namespace
}  // namespace qkv::test
