// attention/cache_test.cpp: keys and values that grow, step by step.
#include <qkv/cache.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reference/elements.h"
#include "support/close.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

std::vector<std::int64_t> integers(const View& x) { return reference::elements<std::int64_t>(x); }

void expect_near(const View& a, const View& b, double tolerance = 2e-5) {
  ASSERT_EQ(a.shape(), b.shape());
  const std::vector<double> x = reference::elements<double>(a), y = reference::elements<double>(b);
  for (std::size_t n = 0; n < x.size(); ++n)
    ASSERT_NEAR(x[n], y[n], tolerance * (1 + std::abs(y[n]))) << "element " << n;
}

// Tokens first .. first + count - 1 of [B, H, T, D].
View tokens(const View& x, std::int64_t first, std::int64_t count) { return x.slice(2, first, count); }

// Appending and asking in steps of these sizes gives what one causal pass over all tokens gives.
void expect_steps_equal_one_pass(const Problem& p, const std::vector<std::int64_t>& steps, std::int64_t left = -1) {
  const View k = p.k();
  Cache cache(k.extent(0), k.extent(1), k.extent(3), p.v().extent(3),
              {.score = p.options().score,
               .dtype = k.dtype() == Dtype::float64 ? Dtype::float64 : Dtype::float32,
               .left = left});
  AttendOptions whole = p.options();
  whole.mask = left < 0 ? causal() : window(left, 0);
  const Tensor expected = attend(p.q(), p.k(), p.v(), whole).out;
  AttendOptions step = p.options();
  step.score = AttendOptions().score;
  step.mask = causal(bottom_right());
  std::int64_t first = 0;
  for (const std::int64_t count : steps) {
    cache.append(tokens(p.k(), first, count), tokens(p.v(), first, count));
    const Tensor out = attend(tokens(p.q(), first, count), cache, step).out;
    expect_near(out, tokens(expected, first, count), p.options().weigh.kind == Weigh::Kind::raw ? 2e-4 : 2e-5);
    if (testing::Test::HasFailure()) return;
    first += count;
    for (std::size_t b = 0; b < static_cast<std::size_t>(k.extent(0)); ++b) {
      EXPECT_EQ(integers(cache.lengths())[b] + integers(cache.evicted())[b], first);
    }
  }
}

TEST(Cache, StepByStepEqualsOneCausalPass) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const Weigh& weigh : all_weighings()) {
        Case c{.B = 2, .H = 4, .Hk = 2, .Tq = 40, .Tk = 40, .D = 6, .Dv = 5, .score = score, .Dk = 7, .weigh = weigh};
        c.want_lse = false;
        c.parameters_per_head = true;
        c.bandwidth = Bandwidth::per_head_and_coordinate;
        SCOPED_TRACE(c.text());
        const Problem p(c);
        expect_steps_equal_one_pass(p, std::vector<std::int64_t>(40, 1));
        expect_steps_equal_one_pass(p, {17, 1, 1, 4, 5, 12});
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

TEST(Cache, GrowsBeyondEveryBlock) {
  on_every_isa([] {
    for (const Score::Kind score :
         {Score::Kind::scaled_dot, Score::Kind::gaussian, Score::Kind::additive, Score::Kind::cosine}) {
      Case c{.B = 1, .H = 2, .Hk = 1, .Tq = 700, .Tk = 700, .D = 6, .Dv = 5, .score = score, .E = 3};
      c.want_lse = false;
      expect_steps_equal_one_pass(Problem(c), {300, 1, 1, 1, 200, 4, 193});
    }
  });
}

TEST(Cache, WorksInFloat64) {
  for (const Score::Kind score : all_score_kinds) {
    const auto f64 = Dtype::float64;
    Case c{.Tq = 20, .Tk = 20, .q = f64, .k = f64, .v = f64, .score = score};
    c.want_lse = false;
    expect_steps_equal_one_pass(Problem(c), {5, 1, 1, 13});
  }
}

TEST(Cache, ThrowsAwayWhatTheWindowHides) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const std::int64_t left : {0, 1, 5, 16, 100}) {
        Case c{.B = 2, .H = 2, .Hk = 1, .Tq = 60, .Tk = 60, .D = 6, .Dv = 5, .score = score};
        c.want_lse = false;
        SCOPED_TRACE("left " + std::to_string(left) + ", " + c.text());
        const Problem p(c);
        expect_steps_equal_one_pass(p, std::vector<std::int64_t>(60, 1), left);
        expect_steps_equal_one_pass(p, {17, 1, 1, 4, 5, 12, 20}, left);
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

// A long stream through a small window takes room for the window, not for the stream.
TEST(Cache, AWindowBoundsTheRoom) {
  const Tensor k = random_tensor({2, 2, 1, 8}, 1), v = random_tensor({2, 2, 1, 8}, 2);
  Cache cache(2, 2, 8, 8, {.left = 20});
  for (int n = 0; n < 3000; ++n) cache.append(k, v);
  EXPECT_LT(cache.capacity(), 200);
  for (const std::int64_t length : integers(cache.lengths())) {
    EXPECT_GE(length, 20);
    EXPECT_LT(length, 200);
  }
  for (std::size_t b = 0; b < 2; ++b) EXPECT_EQ(integers(cache.lengths())[b] + integers(cache.evicted())[b], 3000);
}

TEST(Cache, SequencesGrowAtTheirOwnPace) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const Dtype dtype : {Dtype::int64, Dtype::int32}) {
        const Problem p({.B = 3, .H = 2, .Hk = 1, .Tq = 40, .Tk = 40, .D = 6, .Dv = 5, .score = score});
        Cache cache(3, 1, 6, 5, {.score = p.options().score});
        std::vector<std::int64_t> held = {0, 0, 0};
        Random random(7);
        AttendOptions options = p.options();
        options.want_lse = false;
        for (int step = 0; step < 6; ++step) {
          const std::int64_t T = 6;
          // Sequence b gets the next tokens of its own row; what lies beyond its count must not be taken.
          Tensor k({3, 1, T, 6}), v({3, 1, T, 5}), counts({3}, dtype);
          for (std::int64_t b = 0; b < 3; ++b) {
            const std::int64_t count = step == 0 && b == 1 ? 0 : random.below(T + 1);
            if (dtype == Dtype::int64) counts.values<std::int64_t>()[static_cast<std::size_t>(b)] = count;
            if (dtype == Dtype::int32)
              counts.values<std::int32_t>()[static_cast<std::size_t>(b)] = static_cast<std::int32_t>(count);
            for (std::int64_t t = 0; t < T; ++t) {
              const std::int64_t from = held[static_cast<std::size_t>(b)] + t;
              for (std::int64_t d = 0; d < 6; ++d) {
                set_element(k.view(), (b * T + t) * 6 + d,
                            t < count ? reference::element(p.k(), (b * 40 + from) * 6 + d) : std::nan(""));
              }
              for (std::int64_t d = 0; d < 5; ++d) {
                set_element(v.view(), (b * T + t) * 5 + d,
                            t < count ? reference::element(p.v(), (b * 40 + from) * 5 + d) : std::nan(""));
              }
            }
            held[static_cast<std::size_t>(b)] += count;
          }
          cache.append(k, v, counts);
          EXPECT_EQ(integers(cache.lengths()), held);
          const Tensor lens = Tensor::copy_of(View(held, {3}));
          for (const std::int64_t Tq : {2, 6}) {
            AttendOptions whole = options;
            whole.mask = lengths(lens);
            AttendOptions ask = options;
            ask.score = AttendOptions().score;
            const View q = tokens(p.q(), 0, Tq);
            expect_near(attend(q, cache, ask).out, attend(q, p.k(), p.v(), whole).out);
          }
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(Cache, StoresHalfPrecisionForScoresThatUseKeysAsTheyAre) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float16, Dtype::bfloat16}) {
      for (const Score::Kind score : {Score::Kind::dot, Score::Kind::scaled_dot, Score::Kind::bilinear,
                                      Score::Kind::laplace, Score::Kind::boxcar, Score::Kind::yours}) {
        // Numbers that are exact in half precision: what is stored is what was given.
        const Problem p(
            {.B = 2, .H = 2, .Hk = 1, .Tq = 30, .Tk = 30, .D = 6, .Dv = 5, .k = dtype, .v = dtype, .score = score});
        Cache cache(2, 1, 6, 5, {.score = p.options().score, .dtype = dtype});
        cache.append(p.k(), p.v());
        EXPECT_EQ(cache.keys().dtype(), dtype);
        EXPECT_EQ(cache.values().dtype(), dtype);
        AttendOptions ask = p.options();
        ask.score = AttendOptions().score;
        expect_near(attend(p.q(), cache, ask).out, attend(p.q(), p.k(), p.v(), p.options()).out);
        // float32 is rounded on the way in.
        Cache rounded(2, 1, 6, 5, {.score = p.options().score, .dtype = dtype});
        rounded.append(Tensor::copy_of(p.k(), Dtype::float32), Tensor::copy_of(p.v(), Dtype::float32));
        EXPECT_TRUE(same_bits(attend(p.q(), rounded, ask).out, attend(p.q(), cache, ask).out));
      }
    }
  });
}

// Tokens that wander off: a gaussian's keys are made ready when they come, before anyone knows where the next will be.
TEST(Cache, KeysThatDriftAwayKeepTheirWeights) {
  on_every_isa([] {
    const std::int64_t T = 120;
    Tensor k({1, 1, T, 4}), q({1, 1, T, 4});
    Random random(3);
    for (std::int64_t t = 0; t < T; ++t) {
      for (std::int64_t d = 0; d < 4; ++d) {
        const double place = static_cast<double>(t * t) * 0.7;  // up to 1e4
        set_element(k.view(), t * 4 + d, place + random.normal());
        set_element(q.view(), t * 4 + d, place + random.normal());
      }
    }
    const Tensor v = random_tensor({1, 1, T, 3}, 4);
    Cache cache(1, 1, 4, 3, {.score = gaussian(30)});
    const Tensor expected = attend(q, k, v, {.score = gaussian(30), .mask = causal()}).out;
    for (std::int64_t t = 0; t < T; ++t) {
      cache.append(tokens(k, t, 1), tokens(v, t, 1));
      expect_near(attend(tokens(q, t, 1), cache).out, tokens(expected, t, 1), 1e-3);
      if (testing::Test::HasFailure()) return;
    }
  });
}

TEST(Cache, GivesEveryStatistic) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      for (const std::int64_t Tq : {2, 9}) {
        const Problem p(with_all_statistics({.B = 2, .H = 2, .Hk = 1, .Tq = Tq, .Tk = 40, .score = score}));
        Cache cache(2, 1, 5, 3, {.score = p.options().score});
        cache.append(tokens(p.k(), 0, 13), tokens(p.v(), 0, 13));
        cache.append(tokens(p.k(), 13, 27), tokens(p.v(), 13, 27));
        AttendOptions ask = p.options();
        ask.score = AttendOptions().score;
        expect_right(attend(p.q(), cache, ask), p.q(), p.k(), p.v(), p.options());
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

TEST(Cache, MasksComeOnTop) {
  on_every_isa([] {
    const Problem p({.B = 2, .H = 2, .Hk = 1, .Tq = 7, .Tk = 40});
    Cache cache(2, 1, 5, 3);
    cache.append(p.k(), p.v());
    const Tensor added = random_tensor({7, 40}, 1), kept = random_booleans({2, 40}, 2, 0.6),
                 slopes = random_tensor({2}, 3);
    for (const Mask& mask : {bias(added), keep_keys(kept), alibi(slopes, bottom_right()), window(3, 1, bottom_right()),
                             causal(top_left())}) {
      expect_near(attend(p.q(), cache, {.mask = mask}).out, attend(p.q(), p.k(), p.v(), {.mask = mask}).out);
    }
  });
}

TEST(Cache, ShowsWhatItHolds) {
  const Problem p({.B = 2, .H = 2, .Hk = 2, .Tq = 1, .Tk = 30, .D = 6, .Dv = 5});
  Cache cache(2, 2, 6, 5, {.capacity = 10});
  EXPECT_GE(cache.capacity(), 10);
  EXPECT_EQ(integers(cache.lengths()), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(cache.keys().shape(), (Shape{2, 2, 0, 6}));
  cache.append(tokens(p.k(), 0, 10), tokens(p.v(), 0, 10));
  const Tensor counts = Tensor::of<std::int64_t>({20, 3}, {2});
  cache.append(tokens(p.k(), 10, 20), tokens(p.v(), 10, 20), counts);
  EXPECT_GE(cache.capacity(), 30);
  EXPECT_EQ(integers(cache.lengths()), (std::vector<std::int64_t>{30, 13}));
  EXPECT_EQ(integers(cache.evicted()), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(cache.lengths().dtype(), Dtype::int64);
  EXPECT_EQ(cache.values().shape(), (Shape{2, 2, 30, 5}));
  EXPECT_EQ(reference::elements<float>(cache.values().slice(0, 0, 1)),
            reference::elements<float>(p.v().slice(0, 0, 1)));
  EXPECT_EQ(reference::elements<float>(cache.keys().slice(0, 1, 1).slice(2, 0, 13)),
            reference::elements<float>(p.k().slice(0, 1, 1).slice(2, 0, 13)));
  EXPECT_EQ(cache.options().capacity, 10);
  EXPECT_EQ(cache.options().score.kind, Score::Kind::scaled_dot);
}

TEST(Cache, DoublesItsRoom) {
  const Tensor k = random_tensor({1, 1, 1, 4}, 1), v = random_tensor({1, 1, 1, 4}, 2);
  Cache cache(1, 1, 4, 4, {.capacity = 4});
  std::int64_t growths = 0, room = cache.capacity();
  for (int n = 0; n < 1000; ++n) {
    cache.append(k, v);
    if (cache.capacity() == room) continue;
    EXPECT_GE(cache.capacity(), 2 * room);
    room = cache.capacity();
    ++growths;
  }
  EXPECT_LE(growths, 10);
}

TEST(Cache, ClearKeepsTheRoom) {
  const Problem p({.B = 2, .H = 2, .Hk = 1, .Tq = 5, .Tk = 30, .score = Score::Kind::gaussian});
  Cache cache(2, 1, 5, 3, {.score = p.options().score, .left = 8});
  for (int turn = 0; turn < 3; ++turn) {
    cache.append(p.k(), p.v());
    const std::int64_t room = cache.capacity();
    cache.clear();
    EXPECT_EQ(cache.capacity(), room);
    EXPECT_EQ(integers(cache.lengths()), (std::vector<std::int64_t>{0, 0}));
    EXPECT_EQ(integers(cache.evicted()), (std::vector<std::int64_t>{0, 0}));
    const Tensor nothing = attend(p.q(), cache).out;
    for (const float x : nothing.values<float>()) EXPECT_EQ(x, 0);
  }
}

TEST(Cache, AnEmptyOneAnswersLikeNoKeys) {
  Cache cache(2, 1, 5, 3);
  const Tensor q = random_tensor({2, 2, 4, 5}, 1);
  const Attended got = attend(q, cache, {.want_lse = true});
  for (const float x : got.out.values<float>()) EXPECT_EQ(x, 0);
  for (const float x : got.lse.values<float>()) EXPECT_EQ(x, -HUGE_VALF);
}

TEST(Cache, AppendingNothingChangesNothing) {
  const Problem p({.B = 2, .H = 2, .Hk = 1, .Tq = 5, .Tk = 30});
  Cache cache(2, 1, 5, 3);
  cache.append(p.k(), p.v());
  const Tensor before = attend(p.q(), cache).out;
  cache.append(tokens(p.k(), 0, 0), tokens(p.v(), 0, 0));
  EXPECT_TRUE(same_bits(attend(p.q(), cache).out, before));
}

TEST(Cache, TakesRankThreeAndAnyStrides) {
  const Tensor k = random_tensor({2, 9, 5}, 1), v = random_tensor({2, 9, 3}, 2), q = random_tensor({2, 4, 5}, 3);
  Cache cache(2, 1, 5, 3);
  cache.append(k, v);
  expect_near(attend(q, cache).out, attend(q, k, v).out);
  // [B, T, Hk, D] seen as [B, Hk, T, D].
  const Tensor inside_k = random_tensor({2, 9, 2, 5}, 4), inside_v = random_tensor({2, 9, 2, 3}, 5),
               heads = random_tensor({2, 4, 4, 5}, 6);
  Cache other(2, 2, 5, 3);
  other.append(inside_k.view().swapped(1, 2), inside_v.view().swapped(1, 2));
  expect_near(attend(heads, other).out,
              attend(heads, inside_k.view().swapped(1, 2), inside_v.view().swapped(1, 2)).out);
}

TEST(Cache, Moves) {
  const Problem p({.B = 2, .H = 2, .Hk = 1, .Tq = 5, .Tk = 30});
  Cache cache(2, 1, 5, 3);
  cache.append(p.k(), p.v());
  const Tensor before = attend(p.q(), cache).out;
  Cache moved = std::move(cache);
  EXPECT_TRUE(same_bits(attend(p.q(), moved).out, before));
  Cache another(1, 1, 1, 1);
  another = std::move(moved);
  EXPECT_TRUE(same_bits(attend(p.q(), another).out, before));
}

TEST(Cache, AttendIntoTakesItToo) {
  const Problem p({.B = 2, .H = 2, .Hk = 1, .Tq = 5, .Tk = 30});
  Cache cache(2, 1, 5, 3);
  cache.append(p.k(), p.v());
  Tensor out({2, 2, 5, 3});
  attend_into(p.q(), cache, {.out = out});
  EXPECT_TRUE(same_bits(out, attend(p.q(), cache).out));
}

// Growing in other steps, or with more room from the start, gives the same bits.
TEST(Cache, TheHistoryOfItsRoomLeavesNoTrace) {
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      const Problem p({.B = 2, .H = 2, .Hk = 1, .Tq = 5, .Tk = 60, .score = score});
      Cache roomy(2, 1, 5, 3, {.score = p.options().score, .capacity = 1000}),
          tight(2, 1, 5, 3, {.score = p.options().score, .capacity = 1});
      for (std::int64_t t = 0; t < 60; t += 3) {
        for (Cache* cache : {&roomy, &tight}) cache->append(tokens(p.k(), t, 3), tokens(p.v(), t, 3));
      }
      for (const std::int64_t Tq : {2, 5}) {
        EXPECT_TRUE(same_bits(attend(tokens(p.q(), 0, Tq), roomy).out, attend(tokens(p.q(), 0, Tq), tight).out))
            << score_name(score);
      }
    }
  });
}

TEST(CacheErrors, AppendThatThrowsLeavesItUnchanged) {
  const Problem p({.B = 2, .H = 2, .Hk = 1, .Tq = 5, .Tk = 30});
  Cache cache(2, 1, 5, 3, {.capacity = 64});
  cache.append(p.k(), p.v());
  const Tensor before = attend(p.q(), cache).out;
  const Tensor k = random_tensor({2, 1, 4, 5}, 1), v = random_tensor({2, 1, 4, 3}, 2), k3({3, 1, 4, 5}),
               v3({3, 1, 4, 3}), heads({2, 2, 4, 5}), wide({2, 1, 4, 6}), longer({2, 1, 6, 3}),
               doubles({2, 1, 4, 3}, Dtype::float64), whole({2, 1, 4, 5}, Dtype::int64);
  expect_error<ShapeError>([&] { cache.append(k3, v3); }, {"append", "[3, 1, 4, 5]"});
  expect_error<ShapeError>([&] { cache.append(heads, v); }, {"append", "[2, 2, 4, 5]"});
  expect_error<ShapeError>([&] { cache.append(wide, v); }, {"append", "[2, 1, 4, 6]"});
  expect_error<ShapeError>([&] { cache.append(k, longer); }, {"append", "[2, 1, 6, 3]"});
  expect_error<ShapeError>([&] { cache.append(k, k); }, {"append", "[2, 1, 4, 5]"});
  expect_error<DtypeError>([&] { cache.append(k, doubles); }, {"append", "float64"});
  expect_error<DtypeError>([&] { cache.append(whole, v); }, {"append", "int64"});
  const Tensor five = Tensor::of<std::int64_t>({1, 5}, {2}), minus = Tensor::of<std::int64_t>({-1, 2}, {2}),
               three({3}, Dtype::int64), floats({2});
  expect_error<ShapeError>([&] { cache.append(k, v, five); }, {"append", "5", "4"});
  expect_error<ShapeError>([&] { cache.append(k, v, minus); }, {"append", "-1"});
  expect_error<ShapeError>([&] { cache.append(k, v, three); }, {"append", "[3]"});
  expect_error<DtypeError>([&] { cache.append(k, v, floats); }, {"append", "int32 or int64", "float32"});
  EXPECT_EQ(integers(cache.lengths()), (std::vector<std::int64_t>{30, 30}));
  EXPECT_TRUE(same_bits(attend(p.q(), cache).out, before));
}

TEST(CacheErrors, WhatMakesNoSenseIsRefused) {
  expect_error<ShapeError>([] { Cache(-1, 1, 5, 3); }, {"Cache", "-1"});
  expect_error<DtypeError>([] { Cache(1, 1, 5, 3, {.dtype = Dtype::int32}); }, {"Cache", "int32"});
  expect_error<OptionError>([] { Cache(1, 1, 5, 3, {.capacity = -1}); }, {"Cache", "capacity", "-1"});
  const Tensor Wq = random_tensor({3, 5}, 1), Wk = random_tensor({3, 5}, 2), w = random_tensor({3}, 3);
  for (const Score& score : {cosine(), gaussian(), additive(Wq, Wk, w)}) {
    for (const Dtype dtype : {Dtype::float16, Dtype::bfloat16}) {
      EXPECT_ANY_THROW(Cache(1, 1, 5, 3, {.score = score, .dtype = dtype}));
    }
  }
  Cache cache(1, 1, 5, 3);
  const Tensor q = random_tensor({1, 1, 4, 5}, 1), narrow({1, 1, 4, 4}), two({2, 1, 4, 5});
  expect_error<OptionError>([&] { attend(q, cache, {.score = dot()}); }, {"attend", "options.score"});
  // Of a cache, the mean of all values would be one of room that it does not use.
  expect_error<OptionError>([&] { attend(q, cache, {.on_empty = OnEmpty::uniform}); }, {"attend", "on_empty"});
  expect_error<ShapeError>([&] { attend(narrow, cache); }, {"attend", "[1, 1, 4, 4]"});
  expect_error<ShapeError>([&] { attend(two, cache); }, {"attend", "[2, 1, 4, 5]"});
}

}  // namespace
}  // namespace qkv::test
