// attention/merge_test.cpp: answers over disjoint keys become the answer over all of them.
#include <qkv/merge.h>

#include <cmath>
#include <limits>
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

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t few_and_many[] = {1, 4, 5, 30};
const std::vector<Weigh> mergeable = {softmax(), normalize(), raw(), hard(), hard(-0.25), uniform()};

// The keys cut at these places; each part is asked with what concerns it.
struct Parts {
  std::vector<Attended> answers;
  std::vector<std::int64_t> first_keys;
};
Parts ask_parts(const Problem& p, const std::vector<std::int64_t>& cuts, const View& kept = {}) {
  Parts parts;
  const std::int64_t Tk = p.k().extent(2);
  for (std::size_t n = 0; n <= cuts.size(); ++n) {
    const std::int64_t first = n == 0 ? 0 : cuts[n - 1], last = n == cuts.size() ? Tk : cuts[n];
    AttendOptions options = p.options();
    options.want_partial = true;
    if (kept) options.mask &= keep(kept.slice(kept.rank() - 1, first, last - first));
    parts.answers.push_back(
        attend(p.q(), p.k().slice(2, first, last - first), p.v().slice(2, first, last - first), options));
    parts.first_keys.push_back(first);
  }
  return parts;
}

void expect_near(const View& a, const View& b, double scale) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  const std::vector<double> x = reference::elements<double>(a), y = reference::elements<double>(b);
  for (std::size_t n = 0; n < x.size(); ++n) {
    if (std::isinf(y[n])) {
      ASSERT_EQ(x[n], y[n]);
    } else {
      ASSERT_NEAR(x[n], y[n], 1e-5 * (scale + std::abs(y[n]))) << "element " << n;
    }
  }
}

TEST(Merge, GivesTheAnswerOverAllKeys) {
  on_every_isa([] {
    std::uint64_t seed = 0;
    for (const Score::Kind score : all_score_kinds) {
      for (const Weigh& weigh : mergeable) {
        for (const std::int64_t Tq : few_and_many) {
          for (const std::vector<std::int64_t>& cuts :
               {std::vector<std::int64_t>{}, {40}, {1, 1, 17, 69}, {10, 20, 30, 40, 50, 60}}) {
            Case c{.B = 2, .H = 4, .Hk = 2, .Tq = Tq, .Tk = 70, .D = 6, .Dv = 5, .score = score, .weigh = weigh};
            c.seed = ++seed;
            c.want_partial = true;
            c.temperature = seed % 2 == 0 ? 1 : 0.7;
            SCOPED_TRACE(c.text());
            const Problem p(c);
            const Parts parts = ask_parts(p, cuts);
            const Attended merged = merge(parts.answers, parts.first_keys);
            const Attended whole = attend(p.q(), p.k(), p.v(), p.options());
            const double scale = weigh.kind == Weigh::Kind::raw ? 20 : 1;
            EXPECT_EQ(merged.state_kind, whole.state_kind);
            EXPECT_EQ(static_cast<bool>(merged.state), static_cast<bool>(whole.state));
            EXPECT_EQ(static_cast<bool>(merged.index), static_cast<bool>(whole.index));
            EXPECT_EQ(static_cast<bool>(merged.lse), whole.state_kind == PartialState::log_sum);
            if (whole.state) expect_near(merged.state, whole.state, scale);
            // A gaussian's parts have centres of their own, and round differently: near ties may fall either way.
            const bool may_flip = score == Score::Kind::gaussian && weigh.kind == Weigh::Kind::hard;
            if (!may_flip) expect_near(merged.out, whole.out, scale);
            if (whole.index && !may_flip) {
              EXPECT_TRUE(same_bits(merged.index, whole.index));
            }
            if (merged.lse) expect_near(merged.lse, whole.state, 1);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

// Queries that see keys of some parts only, or of none.
TEST(Merge, PartsThatSawNothingDoNotCount) {
  on_every_isa([] {
    for (const Score::Kind score :
         {Score::Kind::scaled_dot, Score::Kind::gaussian, Score::Kind::triangular, Score::Kind::additive}) {
      for (const Weigh& weigh : mergeable) {
        for (const std::int64_t Tq : few_and_many) {
          Problem p({.B = 1, .H = 2, .Hk = 1, .Tq = Tq, .Tk = 60, .D = 6, .Dv = 5, .score = score, .weigh = weigh});
          Tensor kept({Tq, 60}, Dtype::boolean);
          for (std::int64_t i = 0; i < Tq; ++i) {
            for (std::int64_t j = 0; j < 60; ++j) {
              // Query i sees every third part of ten keys, beginning with part i; every fourth query none.
              kept.values<bool>()[static_cast<std::size_t>(i * 60 + j)] = i % 4 != 3 && (j / 10 + i) % 3 == 0;
            }
          }
          const Parts parts = ask_parts(p, {10, 20, 30, 40, 50}, kept);
          const Attended merged = merge(parts.answers, parts.first_keys);
          AttendOptions options = p.options();
          options.mask = keep(kept);
          options.want_partial = true;
          const Attended whole = attend(p.q(), p.k(), p.v(), options);
          SCOPED_TRACE(std::string(score_name(score)) + " and " + weigh_name(weigh));
          expect_near(merged.out, whole.out, weigh.kind == Weigh::Kind::raw ? 20 : 1);
          if (whole.state) expect_near(merged.state, whole.state, 20);
          if (whole.index) {
            EXPECT_TRUE(same_bits(merged.index, whole.index));
          }
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(Merge, OfEmptyPartsIsAnEmptyPart) {
  const Tensor q = random_tensor({2, 2, 7, 6}, 1), k = random_tensor({2, 2, 20, 6}, 2),
               v = random_tensor({2, 2, 20, 5}, 3), lens = Tensor::of<std::int64_t>({0, 0}, {2});
  for (const Weigh& weigh : mergeable) {
    const AttendOptions options = {.mask = lengths(lens), .weigh = weigh, .want_partial = true};
    std::vector<Attended> parts;
    for (int n = 0; n < 3; ++n) parts.push_back(attend(q, k, v, options));
    const Attended merged = merge(parts);
    for (const float x : merged.out.values<float>()) EXPECT_EQ(x, 0);
    if (merged.state_kind == PartialState::log_sum || merged.state_kind == PartialState::best) {
      for (const float x : merged.state.values<float>()) EXPECT_EQ(x, -infinity);
    }
    if (merged.state_kind == PartialState::sum || merged.state_kind == PartialState::count) {
      for (const float x : merged.state.values<float>()) EXPECT_EQ(x, 0);
    }
    if (merged.index) {
      for (const std::int64_t j : merged.index.values<std::int64_t>()) EXPECT_EQ(j, -1);
    }
  }
}

TEST(Merge, MayBeMergedAgainInAnyOrder) {
  on_every_isa([] {
    for (const Score::Kind score : {Score::Kind::scaled_dot, Score::Kind::laplace}) {
      for (const Weigh& weigh : {softmax(), normalize(), raw(), uniform()}) {
        const Problem p({.B = 1, .H = 2, .Hk = 1, .Tq = 7, .Tk = 60, .D = 6, .Dv = 5, .score = score, .weigh = weigh});
        Parts a = ask_parts(p, {15, 30, 45}), b = ask_parts(p, {15, 30, 45});
        const Attended at_once = merge(a.answers);
        std::vector<Attended> first, second, both;
        first.push_back(std::move(b.answers[3]));
        first.push_back(std::move(b.answers[0]));
        second.push_back(std::move(b.answers[2]));
        second.push_back(std::move(b.answers[1]));
        both.push_back(merge(first));
        both.push_back(merge(second));
        const Attended in_steps = merge(both);
        expect_near(in_steps.out, at_once.out, 20);
        if (at_once.state) expect_near(in_steps.state, at_once.state, 20);
      }
    }
  });
}

TEST(Merge, OfHardPartsTakesTheFirstAmongEquals) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      Problem p({.B = 1,
                 .H = 1,
                 .Hk = 1,
                 .Tq = Tq,
                 .Tk = 30,
                 .D = 3,
                 .Dv = 2,
                 .score = Score::Kind::constant,
                 .weigh = hard()});
      const Parts parts = ask_parts(p, {10, 20});
      for (const Attended held = merge(parts.answers, parts.first_keys);
           const std::int64_t j : held.index.values<std::int64_t>())
        EXPECT_EQ(j, 0);
      const std::vector<std::int64_t> elsewhere = {1000, 0, 500};
      for (const Attended held = merge(parts.answers, elsewhere);
           const std::int64_t j : held.index.values<std::int64_t>())
        EXPECT_EQ(j, 1000);
      for (const Attended held = merge(parts.answers); const std::int64_t j : held.index.values<std::int64_t>())
        EXPECT_EQ(j, 0);
    }
  });
}

// Log-sums that are far apart: the larger takes all, and nothing overflows.
TEST(Merge, OfFarLogSums) {
  const Tensor q({1, 1}), k({1, 1});
  const auto part = [&](float score, float value) {
    const Tensor added = Tensor::of<float>({score}, {1}), v = Tensor::of<float>({value}, {1, 1});
    return attend(q, k, v, {.mask = bias(added), .want_partial = true});
  };
  for (const float far : {200.0f, 1e5f, 1e30f}) {
    std::vector<Attended> parts;
    parts.push_back(part(-far, 1));
    parts.push_back(part(far, 2));
    parts.push_back(part(0, 3));
    const Attended merged = merge(parts);
    EXPECT_EQ(merged.out.values<float>()[0], 2);
    EXPECT_EQ(merged.state.values<float>()[0], far);
  }
}

TEST(Merge, NanComesThrough) {
  for (const Weigh& weigh : mergeable) {
    if (weigh.kind == Weigh::Kind::uniform) continue;
    for (const std::size_t bad : {0u, 1u, 2u}) {
      Problem p({.B = 1, .H = 1, .Hk = 1, .Tq = 6, .Tk = 30, .D = 3, .Dv = 2, .weigh = weigh});
      set_element(p.k(), static_cast<std::int64_t>(bad) * 30 + 5, std::nan(""));
      const Parts parts = ask_parts(p, {10, 20});
      for (const Attended held = merge(parts.answers); const float x : held.out.values<float>())
        EXPECT_TRUE(std::isnan(x)) << weigh_name(weigh);
    }
  }
}

TEST(Merge, WorksInFloat64AndHalfPrecision) {
  for (const Dtype dtype : {Dtype::float64, Dtype::float16, Dtype::bfloat16}) {
    for (const Weigh& weigh : mergeable) {
      Problem p({.Tq = 6, .Tk = 40, .q = dtype, .k = dtype, .v = dtype, .weigh = weigh});
      p.options().want_partial = true;
      const Parts parts = ask_parts(p, {13, 27});
      const Attended merged = merge(parts.answers, parts.first_keys), whole = attend(p.q(), p.k(), p.v(), p.options());
      EXPECT_EQ(merged.out.dtype(), dtype);
      const std::vector<double> x = reference::elements<double>(merged.out), y = reference::elements<double>(whole.out);
      // Parts were rounded to their dtype before they were merged.
      const double rounding = dtype == Dtype::float64 ? 1e-14 : dtype == Dtype::float16 ? 0x1p-10 : 0x1p-7;
      for (std::size_t n = 0; n < x.size(); ++n) ASSERT_NEAR(x[n], y[n], 4 * rounding * (1 + 8 * std::abs(y[n])));
    }
  }
}

TEST(Merge, TakesEveryRank) {
  for (const Shape& front : {Shape{}, Shape{2}}) {
    std::vector<std::int64_t> a(front.begin(), front.end()), b = a;
    a.insert(a.end(), {7, 4});
    b.insert(b.end(), {20, 4});
    const Tensor q = random_tensor(Shape(a), 1), k = random_tensor(Shape(b), 2), v = random_tensor(Shape(b), 3);
    const int axis = front.rank();
    std::vector<Attended> parts;
    for (const std::int64_t first : {0, 10}) {
      parts.push_back(
          attend(q, k.view().slice(axis, first, 10), v.view().slice(axis, first, 10), {.want_partial = true}));
    }
    expect_near(merge(parts).out, attend(q, k, v).out, 1);
  }
}

TEST(MergeErrors, WhatDoesNotFitIsRefused) {
  const Tensor q = random_tensor({7, 4}, 1), k = random_tensor({20, 4}, 2), v = random_tensor({20, 3}, 3),
               wide = random_tensor({20, 5}, 4);
  const auto part = [&](const Tensor& values, const Weigh& weigh) {
    return attend(q, k, values, {.weigh = weigh, .want_partial = true});
  };
  const auto refused = [&]<class E>(E, Attended a, Attended b, std::initializer_list<std::string> texts) {
    std::vector<Attended> parts;
    parts.push_back(std::move(a));
    parts.push_back(std::move(b));
    expect_error<E>([&] { merge(parts); }, texts);
  };
  refused(ShapeError(""), part(v, softmax()), part(wide, softmax()), {"merge", "[7, 3]", "[7, 5]"});
  refused(OptionError(""), part(v, softmax()), part(v, uniform()), {"merge"});
  refused(OptionError(""), part(v, softmax()), attend(q, k, v), {"merge"});
  const Tensor q64({7, 4}, Dtype::float64), k64({20, 4}, Dtype::float64), v64({20, 3}, Dtype::float64);
  refused(DtypeError(""), part(v, softmax()), attend(q64, k64, v64, {.want_partial = true}),
          {"merge", "float64", "float32"});
  expect_error<OptionError>([&] { merge({}); }, {"merge"});
  std::vector<Attended> parts;
  parts.push_back(part(v, hard()));
  parts.push_back(part(v, hard()));
  const std::vector<std::int64_t> one = {0};
  expect_error<ShapeError>([&] { merge(parts, one); }, {"merge", "first_keys", "1", "2"});
}

}  // namespace
}  // namespace qkv::test
