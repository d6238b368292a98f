// attention/prepared_test.cpp: keys that are made ready once and asked many times.
#include <qkv/prepared.h>

#include <cmath>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/close.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/pages.h"
#include "support/poison.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr std::int64_t few_and_many[] = {1, 4, 5, 30};

// The options of a problem without its score, which is that of the keys.
AttendOptions without_score(const AttendOptions& options) {
  AttendOptions rest = options;
  rest.score = AttendOptions().score;
  return rest;
}

TEST(Prepared, AnswersLikeKeysAndValues) {
  on_every_isa([] {
    std::uint64_t seed = 0;
    for (const Score::Kind score : all_score_kinds) {
      for (const Weigh& weigh : all_weighings()) {
        for (const std::int64_t Tq : few_and_many) {
          for (const std::vector<MaskKind>& masks : {std::vector<MaskKind>{}, {MaskKind::causal, MaskKind::keep}}) {
            Case c{.B = 2, .H = 4, .Hk = 2, .Tq = Tq, .Tk = 70, .D = 6, .Dv = 5, .masks = masks};
            c.score = score;
            c.weigh = weigh;
            c.Dk = 9;
            c.parameters_per_head = ++seed % 2 == 0;
            c.bandwidth = all_bandwidths[seed % 5];
            const Problem p(with_all_statistics(c));
            SCOPED_TRACE(c.text());
            const Prepared keys = prepare(p.k(), p.v(), p.options().score);
            expect_right(attend(p.q(), keys, without_score(p.options())), p.q(), p.k(), p.v(), p.options());
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

// Where a mask shows all keys, what attend makes of them beforehand is what prepare makes of them.
TEST(Prepared, GivesTheBitsOfKeysAndValuesWhereAllAreSeen) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const std::int64_t Tq : few_and_many) {
        const Problem p({.B = 2, .H = 4, .Hk = 2, .Tq = Tq, .Tk = 300, .D = 6, .Dv = 5, .score = score});
        const Prepared keys = prepare(p.k(), p.v(), p.options().score);
        const Attended a = attend(p.q(), keys, without_score(p.options())),
                       b = attend(p.q(), p.k(), p.v(), p.options());
        EXPECT_TRUE(same_bits(a.out, b.out)) << score_name(score) << ", Tq " << Tq;
        EXPECT_TRUE(same_bits(a.lse, b.lse)) << score_name(score) << ", Tq " << Tq;
      }
    }
  });
}

// A decoder asks the same keys at every step, with other queries, masks and weighings.
TEST(Prepared, AnswersManyAsks) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      const Problem p({.B = 2, .H = 2, .Hk = 1, .Tq = 6, .Tk = 90, .D = 6, .Dv = 5, .score = score});
      const Prepared keys = prepare(p.k(), p.v(), p.options().score);
      std::uint64_t step = 0;
      for (const Weigh& weigh : {softmax(), raw(), top_k(4), hard(), uniform()}) {
        for (const std::int64_t Tq : few_and_many) {
          const Tensor q = random_tensor({2, 2, Tq, 6}, 100 + ++step);
          AttendOptions options = {.weigh = weigh, .threads = 1 + static_cast<int>(step % 3)};
          const Tensor lens = random_integers({2}, step, 1, 90);
          if (step % 2 == 0) options.mask = lengths(lens);
          const Attended got = attend(q, keys, options);
          options.score = p.options().score;
          // A bandwidth that was chosen for other queries may put a pair on the edge of a compact kernel.
          if (score == Score::Kind::boxcar) continue;
          expect_right(got, q, p.k(), p.v(), options);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(Prepared, KnowsWhatItWasMadeOf) {
  const Tensor k = random_tensor({2, 2, 9, 8}, 1), v = random_tensor({2, 2, 9, 5}, 2);
  const Prepared keys = prepare(k, v, cosine());
  EXPECT_EQ(keys.keys().data(), k.view().data());
  EXPECT_EQ(keys.values().data(), v.view().data());
  EXPECT_EQ(keys.score().kind, Score::Kind::cosine);
  EXPECT_EQ(prepare(k, v).score().kind, Score::Kind::scaled_dot);
}

TEST(Prepared, OwnsOnlyWhatItComputed) {
  const Tensor k = random_tensor({2, 2, 90, 8}, 1), v = random_tensor({2, 2, 90, 5}, 2);
  const Tensor Wq = random_tensor({12, 8}, 3), Wk = random_tensor({12, 8}, 4), w = random_tensor({12}, 5);
  EXPECT_EQ(prepare(k, v, dot()).bytes(), 0);
  EXPECT_EQ(prepare(k, v, laplace()).bytes(), 0);
  EXPECT_GE(prepare(k, v, additive(Wq, Wk, w)).bytes(), 2 * 2 * 90 * 12 * 4);
  EXPECT_GT(prepare(k, v, gaussian()).bytes(), 0);
}

TEST(Prepared, CopiesShareAndOutliveTheOriginal) {
  const Problem p({.B = 1, .H = 1, .Hk = 1, .Tq = 6, .Tk = 40, .D = 6, .score = Score::Kind::additive});
  std::optional<Prepared> keys = prepare(p.k(), p.v(), p.options().score);
  const Prepared copy = *keys;
  const Tensor before = attend(p.q(), *keys).out;
  keys.reset();
  EXPECT_TRUE(same_bits(attend(p.q(), copy).out, before));
}

TEST(Prepared, MayBeAskedFromSeveralThreadsAtOnce) {
  for (const Score::Kind score : {Score::Kind::additive, Score::Kind::gaussian, Score::Kind::cosine}) {
    const Problem p({.B = 2, .H = 2, .Hk = 1, .Tq = 20, .Tk = 300, .D = 6, .score = score});
    const Prepared keys = prepare(p.k(), p.v(), p.options().score);
    const Tensor alone = attend(p.q(), keys).out;
    std::vector<int> wrong(6, 0);
    std::vector<std::thread> callers;
    for (std::size_t caller = 0; caller < wrong.size(); ++caller) {
      callers.emplace_back([&, caller] {
        for (int repeat = 0; repeat < 5; ++repeat) {
          if (!same_bits(attend(p.q(), keys, {.threads = 1 + static_cast<int>(caller) % 3}).out, alone))
            ++wrong[caller];
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (const int count : wrong) EXPECT_EQ(count, 0);
  }
}

TEST(Prepared, GivesTheSameBitsForAnyNumberOfThreadsAndInABatch) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const std::int64_t Tq : {2, 40}) {
        const Problem p({.B = 3, .H = 2, .Hk = 1, .Tq = Tq, .Tk = 300, .D = 6, .score = score});
        const Tensor one = attend(p.q(), prepare(p.k(), p.v(), p.options().score), {.threads = 1}).out;
        for (const int threads : {2, 3, 8}) {
          EXPECT_TRUE(
              same_bits(attend(p.q(), prepare(p.k(), p.v(), p.options().score), {.threads = threads}).out, one));
        }
        for (std::int64_t b = 0; b < 3; ++b) {
          const Prepared alone = prepare(p.k().slice(0, b, 1), p.v().slice(0, b, 1), p.options().score);
          EXPECT_TRUE(same_bits(attend(p.q().slice(0, b, 1), alone).out, Tensor::copy_of(one.view().slice(0, b, 1))))
              << score_name(score) << ", sequence " << b;
        }
      }
    }
  });
}

TEST(Prepared, KeysBeyondTheValidLengthAreNotRead) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const std::int64_t length : {0, 1, 33}) {
        const Problem p({.B = 1, .H = 1, .Hk = 1, .Tq = 6, .Tk = 50, .D = 6, .Dv = 5, .score = score, .Dk = 9});
        RowsOnPages k(p.k()), v(p.v());
        for (std::int64_t j = length; j < 50; ++j) {
          k.forbid(j);
          v.forbid(j);
        }
        const Tensor lens = Tensor::of<std::int64_t>({length}, {1}),
                     narrow = Tensor::of<std::int32_t>({static_cast<int>(length)}, {1});
        for (const Tensor* each : {&lens, &narrow}) {
          const Prepared cut = prepare(k.view(), v.view(), p.options().score, *each);
          const Prepared whole = prepare(p.k(), p.v(), p.options().score, *each);
          for (const std::int64_t Tq : {std::int64_t{2}, std::int64_t{6}}) {
            const View q = p.q().slice(2, 0, Tq);
            EXPECT_TRUE(
                same_bits(attend(q, cut, {.mask = lengths(lens)}).out, attend(q, whole, {.mask = lengths(lens)}).out))
                << score_name(score) << ", length " << length;
          }
        }
      }
    }
  });
}

// One bad key spoils the rows that see it, not the preparation of the others.
TEST(Prepared, PoisonReachesThoseWhoSeeItAndNobodyElse) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const Poison& poison : {poisons[0], poisons[4], poisons[5]}) {
        for (const std::int64_t row : {0, 17, 39}) {
          Case c{.B = 2,
                 .H = 2,
                 .Hk = 1,
                 .Tq = 40,
                 .Tk = 40,
                 .D = 6,
                 .Dv = 5,
                 .masks = {MaskKind::causal},
                 .score = score};
          const Problem p(c);
          poison_row(p.k(), row, poison.bits);
          SCOPED_TRACE(std::string(poison.name) + " in key " + std::to_string(row) + ", " + c.text());
          const Prepared keys = prepare(p.k(), p.v(), p.options().score);
          expect_right(attend(p.q(), keys, without_score(p.options())), p.q(), p.k(), p.v(), p.options());
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(Prepared, TakesEveryDtypeRankAndLayout) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const Dtype dtype : {Dtype::float64, Dtype::float16, Dtype::bfloat16}) {
        const Problem p({.Tq = 7, .Tk = 40, .q = dtype, .k = dtype, .v = dtype, .score = score});
        const Prepared keys = prepare(p.k(), p.v(), p.options().score);
        expect_right(attend(p.q(), keys, without_score(p.options())), p.q(), p.k(), p.v(), p.options());
      }
      for (const Layout layout : all_layouts) {
        const Problem p({.H = 4, .Tq = 7, .Tk = 40, .layout = layout, .score = score});
        const Prepared keys = prepare(p.k(), p.v(), p.options().score);
        expect_right(attend(p.q(), keys, without_score(p.options())), p.q(), p.k(), p.v(), p.options());
      }
      const Problem p({.B = 1, .H = 1, .Hk = 1, .Tq = 7, .Tk = 40, .score = score});
      const auto flat = [](const View& x) { return View(x.data(), x.dtype(), {x.extent(2), x.extent(3)}); };
      const Prepared keys = prepare(flat(p.k()), flat(p.v()), p.options().score);
      expect_right(attend(flat(p.q()), keys, without_score(p.options())), flat(p.q()), flat(p.k()), flat(p.v()),
                   p.options());
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST(Prepared, NoKeysAtAllWork) {
  const Tensor k({2, 2, 0, 8}), v({2, 2, 0, 5}), q = random_tensor({2, 4, 6, 8}, 1);
  for (const Score& score : {dot(), cosine(), gaussian(), laplace(), constant()}) {
    for (const Attended held = attend(q, prepare(k, v, score)); const float x : held.out.values<float>())
      EXPECT_EQ(x, 0);
  }
}

TEST(Prepared, AttendIntoAndPlanTakeItToo) {
  const Problem p({.Tq = 20, .Tk = 40, .score = Score::Kind::gaussian});
  const Prepared keys = prepare(p.k(), p.v(), p.options().score);
  Tensor out({2, 2, 20, 3});
  attend_into(p.q(), keys, {.out = out});
  EXPECT_TRUE(same_bits(out, attend(p.q(), keys).out));
  EXPECT_FALSE(plan(p.q(), keys).kernel.empty());
}

// A Bahdanau decoder that asks thirty times pays for one projection: the answers are those of thirty.
TEST(Prepared, ServesADecoder) {
  const Problem p(
      {.B = 2, .H = 1, .Hk = 1, .Tq = 30, .Tk = 12, .D = 20, .Dv = 4, .score = Score::Kind::additive, .Dk = 2});
  const Prepared keys = prepare(p.k(), p.v(), p.options().score);
  const Tensor lens = Tensor::of<std::int64_t>({12, 5}, {2});
  for (std::int64_t step = 0; step < 30; ++step) {
    const View state = p.q().slice(2, step, 1);
    AttendOptions options = {.mask = lengths(lens)};
    const Attended got = attend(state, keys, options);
    options.score = p.options().score;
    expect_right(got, state, p.k(), p.v(), options);
  }
}

TEST(PreparedErrors, TheScoreIsThatOfTheKeys) {
  const Tensor x = random_tensor({6, 8}, 1);
  const Prepared keys = prepare(x, x, cosine());
  for (const Score& score : {cosine(), dot(), gaussian()}) {
    expect_error<OptionError>([&] { attend(x, keys, {.score = score}); }, {"attend", "score", "prepared"});
  }
}

TEST(PreparedErrors, WhatDoesNotFitIsRefused) {
  const Tensor k = random_tensor({2, 2, 9, 8}, 1), v = random_tensor({2, 2, 9, 5}, 2),
               short_v = random_tensor({2, 2, 8, 5}, 3), q = random_tensor({2, 4, 6, 7}, 4),
               flat = random_tensor({9, 8}, 5), one({1, 4, 6, 8});
  expect_error<ShapeError>([&] { prepare(k, short_v); }, {"prepare", "[2, 2, 9, 8]", "[2, 2, 8, 5]"});
  expect_error<ShapeError>([&] { prepare(k, flat); }, {"prepare", "[2, 2, 9, 8]", "[9, 8]"});
  const Prepared keys = prepare(k, v, cosine());
  expect_error<ShapeError>([&] { attend(q, keys); }, {"attend", "[2, 4, 6, 7]", "[2, 2, 9, 8]"});
  expect_error<ShapeError>([&] { attend(one, keys); }, {"attend", "[1, 4, 6, 8]"});
  const Tensor doubles({2, 2, 9, 5}, Dtype::float64), integers({2, 2, 9, 8}, Dtype::int64);
  expect_error<DtypeError>([&] { prepare(k, doubles); }, {"prepare", "float64"});
  expect_error<DtypeError>([&] { prepare(integers, v); }, {"prepare", "int64"});
  expect_error<OptionError>([&] { prepare(k, v, gaussian(-1)); }, {"prepare", "sigma"});
  const Tensor Wq = random_tensor({3, 8}, 6), Wk = random_tensor({3, 7}, 7), w = random_tensor({3}, 8);
  expect_error<ShapeError>([&] { prepare(k, v, additive(Wq, Wk, w)); }, {"prepare", "additive", "[3, 7]"});
  const Tensor three = Tensor::of<std::int64_t>({1, 2, 3}, {3}), ten = Tensor::of<std::int64_t>({3, 10}, {2});
  expect_error<ShapeError>([&] { prepare(k, v, dot(), three); }, {"prepare", "[3]"});
  expect_error<ShapeError>([&] { prepare(k, v, dot(), ten); }, {"prepare", "10"});
}

// Parameters of heads say how many query heads there must be.
TEST(PreparedErrors, ParametersPerHeadMustFitTheQueries) {
  const Tensor k = random_tensor({2, 2, 9, 8}, 1), v = random_tensor({2, 2, 9, 5}, 2),
               q = random_tensor({2, 6, 3, 8}, 3);
  const Tensor Wq = random_tensor({4, 3, 8}, 6), Wk = random_tensor({4, 3, 8}, 7), w = random_tensor({3}, 8);
  expect_error<ShapeError>(
      [&] {
        const Prepared keys = prepare(k, v, additive(Wq, Wk, w));
        attend(q, keys);
      },
      {"additive", "[4, 3, 8]"});
  const Tensor three = random_tensor({3, 8}, 9);  // query heads that cannot share two key heads
  expect_error<ShapeError>([&] { prepare(k, v, gaussian(three)); },
                           {"prepare", "gaussian", "sigma [3, 8]", "Hk = 2", "k [2, 2, 9, 8]", "v [2, 2, 9, 5]"});
}

TEST(PreparedErrors, ShapesAreThoseThatWereGiven) {
  const Tensor q({6, 8}), k({9, 7}), v({9, 5}), M({8, 7}), wrong({6, 7});
  expect_error<ShapeError>([&] { attend(q, prepare(k, v, bilinear(wrong))); },
                           {"attend", "M [6, 7]", "q [6, 8]", "k [9, 7]", "v [9, 5]"});
  EXPECT_NO_THROW(attend(q, prepare(k, v, bilinear(M))));
}

// Parameters of no heads are those of no queries; there is nothing to read.
TEST(Prepared, NoHeadsHaveNoParameters) {
  const Tensor q({2, 0, 6, 8}), k = random_tensor({2, 2, 9, 8}, 1), v = random_tensor({2, 2, 9, 5}, 2);
  const Tensor Wq({0, 3, 8}), Wk({0, 3, 8}), w = random_tensor({3}, 3), M({0, 8, 8}), sigma({0, 8});
  for (const Score& score : {additive(Wq, Wk, w), bilinear(M), gaussian(sigma), laplace(sigma)}) {
    EXPECT_EQ(attend(q, k, v, {.score = score}).out.shape(), (Shape{2, 0, 6, 5}));
    EXPECT_EQ(attend(q, prepare(k, v, score)).out.shape(), (Shape{2, 0, 6, 5}));
  }
}

}  // namespace
}  // namespace qkv::test
