// attention/reproducible_test.cpp: the same bits for any number of threads and whatever else is in the batch.
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/threads.h>

#include "support/close.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

void expect_same_bits(const Attended& a, const Attended& b) {
  EXPECT_TRUE(same_bits(a.out, b.out)) << "in out";
  EXPECT_TRUE(same_bits(a.lse, b.lse)) << "in lse";
  EXPECT_TRUE(same_bits(a.weights, b.weights)) << "in weights";
}

// Few queries with more keys than a chunk of decode has; many queries with more keys than a block has.
const std::vector<Case> shapes = {
    {.B = 2, .H = 4, .Hk = 2, .Tq = 1, .Tk = 9000, .D = 16, .Dv = 16, .want_weights = true},
    {.B = 2, .H = 4, .Hk = 1, .Tq = 4, .Tk = 1100, .D = 9, .Dv = 7, .want_weights = true},
    {.B = 3, .H = 2, .Hk = 2, .Tq = 130, .Tk = 300, .D = 16, .Dv = 16, .want_weights = true},
    {.B = 2, .H = 6, .Hk = 3, .Tq = 53, .Tk = 70, .D = 40, .Dv = 24, .want_weights = true},
};
const std::vector<std::vector<MaskKind>> masks = {
    {},
    {MaskKind::lengths, MaskKind::causal},
    {MaskKind::window, MaskKind::alibi},
    {MaskKind::keep, MaskKind::bias},
    {MaskKind::query_lengths, MaskKind::block_mask},
    {MaskKind::keep_by, MaskKind::edit_by},
};

TEST(Reproducible, AnyNumberOfThreadsGivesTheSameBits) {
  on_every_isa([] {
    for (Case c : shapes) {
      for (const auto& mask : masks) {
        c.masks = mask;
        Problem p(c);
        SCOPED_TRACE(c.text());
        p.options().threads = 1;
        const Attended one = attend(p.q(), p.k(), p.v(), p.options());
        for (const int threads : {2, 3, 8}) {
          SCOPED_TRACE(std::to_string(threads) + " threads");
          p.options().threads = threads;
          expect_same_bits(attend(p.q(), p.k(), p.v(), p.options()), one);
        }
      }
    }
  });
}

// Part b of an array whose first axis is the batch.
View only(const View& x, std::int64_t b) { return x.slice(0, b, 1); }
Tensor copy_only(const View& x, std::int64_t b) { return Tensor::copy_of(only(x, b)); }

TEST(Reproducible, ASequenceAloneGivesTheBitsItGivesInABatch) {
  on_every_isa([] {
    for (const Case& c : shapes) {
      SCOPED_TRACE(c.text());
      const Problem p(c);
      const Tensor lens = random_integers({c.B}, 7, c.Tk / 3, c.Tk),
                   kept = random_booleans({c.B, 1, c.Tq, c.Tk}, 8, 0.8),
                   added = random_tensor({c.B, c.H, c.Tq, c.Tk}, 9),
                   slopes = random_tensor({c.H}, 10, Dtype::float32, 0.1);
      const auto run = [&](const View& q, const View& k, const View& v, const View& l, const View& m, const View& a) {
        AttendOptions options = p.options();
        options.threads = 3;
        options.mask = lengths(l) & keep(m) & bias(a) & causal(bottom_right()) & alibi(slopes);
        return attend(q, k, v, options);
      };
      const Attended batch = run(p.q(), p.k(), p.v(), lens, kept, added);
      for (std::int64_t b = 0; b < c.B; ++b) {
        SCOPED_TRACE("sequence " + std::to_string(b));
        const Attended alone =
            run(only(p.q(), b), only(p.k(), b), only(p.v(), b), only(lens, b), only(kept, b), only(added, b));
        EXPECT_TRUE(same_bits(alone.out, copy_only(batch.out, b)));
        EXPECT_TRUE(same_bits(alone.lse, copy_only(batch.lse, b)));
        EXPECT_TRUE(same_bits(alone.weights, copy_only(batch.weights, b)));
      }
    }
  });
}

TEST(Reproducible, ASequenceAloneGivesItsBitsAlsoWithLengthsOnly) {
  on_every_isa([] {
    for (const Case& c : shapes) {
      SCOPED_TRACE(c.text());
      const Problem p(c);
      const Tensor lens = random_integers({c.B}, 7, 0, c.Tk);
      AttendOptions options = p.options();
      options.mask = lengths(lens);
      const Attended batch = attend(p.q(), p.k(), p.v(), options);
      for (std::int64_t b = 0; b < c.B; ++b) {
        options.mask = lengths(only(lens, b));
        const Attended alone = attend(only(p.q(), b), only(p.k(), b), only(p.v(), b), options);
        EXPECT_TRUE(same_bits(alone.out, copy_only(batch.out, b))) << "sequence " << b;
        EXPECT_TRUE(same_bits(alone.lse, copy_only(batch.lse, b))) << "sequence " << b;
      }
    }
  });
}

// Heads are as independent as sequences: one key head with its query heads, cut out, gives the same bits.
TEST(Reproducible, AHeadAloneGivesTheBitsItGivesAmongOthers) {
  on_every_isa([] {
    for (const Case& c : shapes) {
      SCOPED_TRACE(c.text());
      const Problem p(c);
      const std::int64_t group = c.H / c.Hk;
      const Attended all = attend(p.q(), p.k(), p.v(), p.options());
      for (std::int64_t h = 0; h < c.Hk; ++h) {
        const Attended alone =
            attend(p.q().slice(1, h * group, group), p.k().slice(1, h, 1), p.v().slice(1, h, 1), p.options());
        EXPECT_TRUE(same_bits(alone.out, Tensor::copy_of(all.out.view().slice(1, h * group, group))))
            << "key head " << h;
      }
    }
  });
}

TEST(Reproducible, AskingForStatisticsDoesNotChangeTheOutput) {
  on_every_isa([] {
    for (Case c : shapes) {
      c.masks = {MaskKind::lengths, MaskKind::causal};
      Problem p(c);
      SCOPED_TRACE(c.text());
      p.options().want_weights = false;
      p.options().want_lse = false;
      const Tensor bare = attend(p.q(), p.k(), p.v(), p.options()).out;
      p.options().want_lse = true;
      EXPECT_TRUE(same_bits(attend(p.q(), p.k(), p.v(), p.options()).out, bare));
    }
  });
}

TEST(Reproducible, ConcurrentCallersGetTheirOwnRightAnswers) {
  const Problem a(shapes[0]), b(shapes[2]);
  const Attended alone_a = attend(a.q(), a.k(), a.v(), a.options()), alone_b = attend(b.q(), b.k(), b.v(), b.options());
  std::vector<int> wrong(6, 0);
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < wrong.size(); ++caller) {
    callers.emplace_back([&, caller] {
      const Problem& p = caller % 2 == 0 ? a : b;
      const Attended& alone = caller % 2 == 0 ? alone_a : alone_b;
      AttendOptions options = p.options();
      options.threads = 1 + static_cast<int>(caller);
      for (int repeat = 0; repeat < 5; ++repeat) {
        if (!same_bits(attend(p.q(), p.k(), p.v(), options).out, alone.out)) ++wrong[caller];
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

TEST(Reproducible, TheProcessWideNumberOfThreadsIsUsedWhereACallDoesNotSay) {
  const int before = thread_count();
  const Problem p(shapes[2]);
  AttendOptions options = p.options();
  options.threads = 0;
  set_thread_count(1);
  const Attended one = attend(p.q(), p.k(), p.v(), options);
  EXPECT_EQ(plan(p.q(), p.k(), p.v(), options).threads, 1);
  set_thread_count(3);
  expect_same_bits(attend(p.q(), p.k(), p.v(), options), one);
  EXPECT_EQ(plan(p.q(), p.k(), p.v(), options).threads, 3);
  set_thread_count(before);
}

}  // namespace
}  // namespace qkv::test
