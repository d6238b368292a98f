// attention/dropout_test.cpp: weights that are dropped in training: which ones, and what is left.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/attend.h>

#include "base/random.h"
#include "support/close.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr std::int64_t few_and_many[] = {1, 4, 5, 40};

struct Tensors {
  Tensor q, k, v;
  explicit Tensors(std::int64_t Tq, std::int64_t Tk = 150)
      : q(random_tensor({2, 4, Tq, 8}, 1)), k(random_tensor({2, 2, Tk, 8}, 2)), v(random_tensor({2, 2, Tk, 5}, 3)) {}
};

// Values that are the unit vectors: the output is the weights as they were pooled.
Tensor units(std::int64_t B, std::int64_t Hk, std::int64_t Tk) {
  Tensor v({B, Hk, Tk, Tk});
  for (std::int64_t head = 0; head < B * Hk; ++head) {
    for (std::int64_t j = 0; j < Tk; ++j) v.values<float>()[static_cast<std::size_t>((head * Tk + j) * Tk + j)] = 1;
  }
  return v;
}

TEST(Dropout, FollowsTheGeneratorExactly) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const std::int64_t Tk : {7, 150}) {
        const Tensor q = random_tensor({2, 4, Tq, 8}, 1), k = random_tensor({2, 2, Tk, 8}, 2), v = units(2, 2, Tk);
        for (const double p : {0.1, 0.5, 0.9}) {
          const Attended got = attend(q, k, v, {.dropout = p, .training = true, .seed = 12345, .want_weights = true});
          const auto threshold = static_cast<std::uint64_t>(std::llround(p * 0x1p32));
          std::size_t n = 0;
          for (std::int64_t b = 0; b < 2; ++b) {
            for (std::int64_t h = 0; h < 4; ++h) {
              for (std::int64_t i = 0; i < Tq; ++i) {
                for (std::int64_t j = 0; j < Tk; ++j, ++n) {
                  const bool dropped = random_bits(random_key(12345, b, h, i), j) < threshold;
                  const auto weight = static_cast<double>(got.weights.values<float>()[n]);
                  ASSERT_NEAR(got.out.values<float>()[n], dropped ? 0 : weight / (1 - p), 2e-6 / (1 - p))
                      << b << ' ' << h << ' ' << i << ' ' << j;
                }
              }
            }
          }
        }
      }
    }
  });
}

TEST(Dropout, IsRightUnderEveryScoreAndWeighing) {
  on_every_isa([] {
    std::uint64_t seed = 0;
    for (const Score::Kind score : all_score_kinds) {
      for (const Weigh& weigh : all_weighings()) {
        for (const std::int64_t Tq : {3, 18}) {
          Case c{.H = 4, .Hk = 2, .Tq = Tq, .Tk = 70, .masks = {MaskKind::keep}, .score = score, .weigh = weigh};
          c = with_all_statistics(c);
          c.want_partial = false;
          c.dropout = 0.3;
          c.seed = ++seed;
          expect_right(c);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(Dropout, IsRightAcrossBlocksAndChunks) {
  on_every_isa([] {
    for (const auto& [Tq, Tk] : {std::pair{53, 600}, {2, 5000}, {4, 1025}}) {
      Case c{.B = 1, .H = 4, .Hk = 2, .Tq = Tq, .Tk = Tk, .D = 5, .Dv = 6, .masks = {MaskKind::causal}};
      c.dropout = 0.5;
      expect_right(c);
    }
  });
}

TEST(Dropout, KeepsTheExpectation) {
  const std::int64_t Tk = 4000;
  const Tensor q({1, 8, 16, 4}), k({1, 8, Tk, 4});
  Tensor v({1, 8, Tk, 1});
  std::ranges::fill(v.values<float>(), 1.0f);
  for (const double p : {0.1, 0.5, 0.9}) {
    const Tensor out = attend(q, k, v, {.dropout = p, .training = true, .seed = 5}).out;
    double mean = 0;
    for (const float x : out.values<float>()) {
      // The mean of 4000 numbers that are 0 or 1/(1-p): five standard deviations.
      ASSERT_NEAR(x, 1, 5 * std::sqrt(p / (1 - p) / static_cast<double>(Tk)));
      mean += static_cast<double>(x) / 128;
    }
    EXPECT_NEAR(mean, 1, 5 * std::sqrt(p / (1 - p) / static_cast<double>(Tk * 128)));
  }
}

TEST(Dropout, DoesNotDependOnThreadsOrOnTheRestOfTheBatch) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensors t(Tq, 700);
      AttendOptions options = {.dropout = 0.4, .training = true, .seed = 9, .threads = 1};
      const Tensor one = attend(t.q, t.k, t.v, options).out;
      for (const int threads : {2, 3, 8}) {
        options.threads = threads;
        EXPECT_TRUE(same_bits(attend(t.q, t.k, t.v, options).out, one)) << threads;
      }
      // A sequence alone, under its own id.
      const Tensor id = Tensor::of<std::int64_t>({1}, {1});
      options.sequence_ids = id;
      const auto second = [](const Tensor& x) { return x.view().slice(0, 1, 1); };
      EXPECT_TRUE(same_bits(attend(second(t.q), second(t.k), second(t.v), options).out, Tensor::copy_of(second(one))));
    }
  });
}

TEST(Dropout, SequenceIdsDefaultToThePlaceInTheBatch) {
  const Tensors t(6);
  const Tensor ids = Tensor::of<std::int64_t>({0, 1}, {2}), narrow = Tensor::of<std::int32_t>({0, 1}, {2}),
               others = Tensor::of<std::int64_t>({1, 0}, {2});
  AttendOptions options = {.dropout = 0.4, .training = true, .seed = 9};
  const Tensor expected = attend(t.q, t.k, t.v, options).out;
  options.sequence_ids = ids;
  EXPECT_TRUE(same_bits(attend(t.q, t.k, t.v, options).out, expected));
  options.sequence_ids = narrow;
  EXPECT_TRUE(same_bits(attend(t.q, t.k, t.v, options).out, expected));
  options.sequence_ids = others;
  EXPECT_FALSE(same_bits(attend(t.q, t.k, t.v, options).out, expected));
}

TEST(Dropout, AnotherSeedDropsOthers) {
  const Tensors t(6);
  AttendOptions options = {.dropout = 0.4, .training = true, .seed = 9};
  const Tensor a = attend(t.q, t.k, t.v, options).out;
  EXPECT_TRUE(same_bits(attend(t.q, t.k, t.v, options).out, a));
  options.seed = 10;
  EXPECT_FALSE(same_bits(attend(t.q, t.k, t.v, options).out, a));
}

TEST(Dropout, HappensOnlyInTraining) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensors t(Tq);
      const Tensor plain = attend(t.q, t.k, t.v).out;
      EXPECT_TRUE(same_bits(attend(t.q, t.k, t.v, {.dropout = 0.5}).out, plain));
      EXPECT_TRUE(same_bits(attend(t.q, t.k, t.v, {.dropout = 0.5, .seed = 1}).out, plain));
      EXPECT_TRUE(same_bits(attend(t.q, t.k, t.v, {.training = true}).out, plain)) << "nothing to drop, no seed needed";
      EXPECT_TRUE(same_bits(attend(t.q, t.k, t.v, {.training = true, .seed = 1}).out, plain));
    }
  });
}

TEST(Dropout, LeavesEveryStatisticAlone) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Problem p(with_all_statistics({.H = 4, .Hk = 2, .Tq = Tq, .Tk = 150, .D = 8, .masks = {MaskKind::causal}}));
      AttendOptions options = p.options();
      options.want_partial = false;
      const Attended plain = attend(p.q(), p.k(), p.v(), options);
      options.dropout = 0.5;
      options.training = true;
      options.seed = 1;
      const Attended dropped = attend(p.q(), p.k(), p.v(), options);
      for (const auto member :
           {&Attended::lse, &Attended::weights, &Attended::row_weights, &Attended::scores, &Attended::mass,
            &Attended::top_weights, &Attended::top_indices, &Attended::entropy, &Attended::effective}) {
        EXPECT_TRUE(same_bits(dropped.*member, plain.*member));
      }
      EXPECT_FALSE(same_bits(dropped.out, plain.out));
    }
  });
}

// A value whose weight is dropped is a value with weight 0: NaN in it comes through, as under any weight of 0.
// What the mask excludes stays out.
TEST(Dropout, DoesNotBringBackWhatTheMaskExcludes) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensors t(Tq);
      Tensor poisoned = t.v.clone();
      for (std::size_t head = 0; head < 4; ++head) {
        for (float& x : poisoned.values<float>().subspan(head * 150 * 5 + 100 * 5, 50 * 5)) x = std::nanf("");
      }
      const Tensor lens = Tensor::of<std::int64_t>({100, 73}, {2});
      const AttendOptions options = {.mask = lengths(lens), .dropout = 0.5, .training = true, .seed = 2};
      EXPECT_TRUE(same_bits(attend(t.q, t.k, poisoned, options).out, attend(t.q, t.k, t.v, options).out));
    }
  });
}

TEST(Dropout, RefusesWhatMakesNoSense) {
  const Tensors t(6);
  const auto refused = [&](const AttendOptions& options, std::initializer_list<std::string> parts) {
    expect_error<OptionError>([&] { attend(t.q, t.k, t.v, options); }, parts);
  };
  refused({.dropout = 0.5, .training = true}, {"attend", "seed"});
  refused({.dropout = 1, .training = true, .seed = 1}, {"attend", "dropout", "1"});
  refused({.dropout = -0.1, .training = true, .seed = 1}, {"attend", "dropout", "-0.1"});
  refused({.dropout = std::nan(""), .training = true, .seed = 1}, {"attend", "dropout"});
  refused({.dropout = 1.5}, {"attend", "dropout", "1.5"});
  const Tensor three({3}, Dtype::int64), floats({2});
  expect_error<ShapeError>(
      [&] { attend(t.q, t.k, t.v, {.dropout = 0.5, .training = true, .seed = 1, .sequence_ids = three}); },
      {"attend", "sequence_ids", "[3]", "B = 2"});
  expect_error<DtypeError>(
      [&] { attend(t.q, t.k, t.v, {.dropout = 0.5, .training = true, .seed = 1, .sequence_ids = floats}); },
      {"attend", "sequence_ids", "int32 or int64", "float32"});
}

}  // namespace
}  // namespace qkv::test
