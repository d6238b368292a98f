// attention/more_statistics_test.cpp: chosen rows, mass, the largest weights, entropy and the effective number of keys.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "support/close.h"
#include "support/isas.h"
#include "support/layout.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

struct Tensors {
  Tensor q, k, v;
  explicit Tensors(std::int64_t Tq, std::int64_t Tk = 150)
      : q(random_tensor({2, 4, Tq, 8}, 1)), k(random_tensor({2, 2, Tk, 8}, 2)), v(random_tensor({2, 2, Tk, 5}, 3)) {}
};

TEST(MoreStatistics, AreRightTogetherOverSizes) {
  on_every_isa([] {
    std::uint64_t seed = 0;
    for (const Weigh& weigh : all_weighings()) {
      for (const std::int64_t Tq : {1, 4, 5, 17, 50}) {
        for (const std::int64_t Tk : {1, 3, 9, 70, 257, 600}) {
          Case c{.B = 1,
                 .H = 4,
                 .Hk = 2,
                 .Tq = Tq,
                 .Tk = Tk,
                 .D = 7,
                 .Dv = 6,
                 .masks = {MaskKind::causal},
                 .weigh = weigh};
          c.seed = ++seed;
          expect_right(with_all_statistics(c));
        }
      }
    }
  });
}

// One statistic at a time: none leans on another having been asked for.
TEST(MoreStatistics, AreRightAlone) {
  on_every_isa([] {
    for (const Weigh& weigh : all_weighings()) {
      for (const std::int64_t Tq : {3, 18}) {
        for (int which = 0; which < 6; ++which) {
          Case c{.Tq = Tq, .Tk = 40, .masks = {MaskKind::keep}, .want_lse = false, .weigh = weigh};
          c.want_mass = which == 0;
          c.want_top = which == 1 ? 5 : 0;
          c.want_entropy = which == 2;
          c.want_effective = which == 3;
          c.want_partial = which == 4;
          if (which == 5) c.want_rows = {0, 2, 1, 2};
          expect_right(c);
        }
      }
    }
  });
}

TEST(MoreStatistics, DoNotChangeTheOutput) {
  on_every_isa([] {
    for (const Weigh& weigh : all_weighings()) {
      for (const std::int64_t Tq : {1, 4, 5, 60}) {
        Case c{.Tq = Tq, .Tk = 300, .masks = {MaskKind::lengths}, .weigh = weigh};
        const Problem all(with_all_statistics(c));
        AttendOptions bare = all.options();
        bare.want_lse = bare.want_weights = bare.want_mass = bare.want_entropy = bare.want_effective = false;
        bare.want_partial = false;
        bare.want_top = 0;
        bare.want_rows = {};
        bare.want_scores = ScoreStage::none;
        EXPECT_TRUE(same_bits(attend(all.q(), all.k(), all.v(), all.options()).out,
                              attend(all.q(), all.k(), all.v(), bare).out))
            << c.text();
      }
    }
  });
}

TEST(MoreStatistics, OnlyWhatIsAskedForIsThere) {
  const Tensor x = random_tensor({7, 8}, 1);
  const Attended got = attend(x, x, x);
  for (const Tensor* absent : {&got.row_weights, &got.mass, &got.top_weights, &got.top_indices, &got.entropy,
                               &got.effective, &got.state, &got.index}) {
    EXPECT_FALSE(*absent);
  }
  EXPECT_EQ(got.state_kind, PartialState::none);
}

TEST(MoreStatistics, HaveTheRankOfTheQueries) {
  const Tensor rows = Tensor::of<std::int64_t>({4, 0, 1}, {3});
  const AttendOptions all = {.want_rows = rows,
                             .want_mass = true,
                             .want_top = 2,
                             .want_entropy = true,
                             .want_effective = true,
                             .want_partial = true};
  const Tensor flat = random_tensor({7, 8}, 1), deep = random_tensor({3, 7, 8}, 2);
  expect_right(flat, flat, flat, all);
  expect_right(deep, deep, deep, all);
  const Attended got = attend(flat, flat, flat, all);
  EXPECT_EQ(got.row_weights.shape(), (Shape{3, 7}));
  EXPECT_EQ(got.mass.shape(), (Shape{7}));
  EXPECT_EQ(got.top_weights.shape(), (Shape{7, 2}));
  EXPECT_EQ(got.top_indices.shape(), (Shape{7, 2}));
  EXPECT_EQ(got.top_indices.dtype(), Dtype::int64);
  EXPECT_EQ(got.entropy.shape(), (Shape{7}));
  EXPECT_EQ(got.effective.shape(), (Shape{7}));
  EXPECT_EQ(got.state.shape(), (Shape{7}));
}

TEST(MoreStatistics, OfHalvesAreFloat32) {
  const Tensor x = random_tensor({5, 4}, 1, Dtype::float16);
  const Attended got = attend(
      x, x, x, {.want_mass = true, .want_top = 2, .want_entropy = true, .want_effective = true, .want_partial = true});
  for (const Tensor* statistic : {&got.mass, &got.top_weights, &got.entropy, &got.effective, &got.state}) {
    EXPECT_EQ(statistic->dtype(), Dtype::float32);
  }
}

TEST(RowWeights, AreRowsOfTheWeights) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 4, 5, 60}) {
      const Tensors t(Tq);
      // In any order, some of them twice; int32 and int64.
      const Tensor wide = random_integers({7}, 4, 0, Tq - 1), narrow = random_integers({7}, 4, 0, Tq - 1, Dtype::int32);
      for (const Weigh& weigh : all_weighings()) {
        AttendOptions options = {.mask = causal(bottom_right()), .weigh = weigh, .want_weights = true};
        for (const Tensor* rows : {&wide, &narrow}) {
          options.want_rows = *rows;
          const Attended got = attend(t.q, t.k, t.v, options);
          ASSERT_EQ(got.row_weights.shape(), (Shape{2, 4, 7, 150}));
          for (std::size_t head = 0; head < 8; ++head) {
            for (std::size_t r = 0; r < 7; ++r) {
              const auto i = static_cast<std::size_t>(wide.values<std::int64_t>()[r]);
              const auto a = got.row_weights.values<float>().subspan((head * 7 + r) * 150, 150);
              const auto b = got.weights.values<float>().subspan((head * static_cast<std::size_t>(Tq) + i) * 150, 150);
              for (std::size_t j = 0; j < 150; ++j)
                ASSERT_NEAR(a[j], b[j], 2e-6f * (1 + std::abs(b[j]))) << "row " << i << ", key " << j;
            }
          }
        }
      }
    }
  });
}

TEST(RowWeights, OfNoRowsAreThereAndEmpty) {
  const Tensors t(6);
  const Tensor none({0}, Dtype::int64);
  const Attended got = attend(t.q, t.k, t.v, {.want_rows = none});
  EXPECT_TRUE(got.row_weights);
  EXPECT_EQ(got.row_weights.shape(), (Shape{2, 4, 0, 150}));
}

TEST(Mass, OfSoftmaxSumsToTheNumberOfQueriesThatSeeAKey) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 4, 5, 60}) {
      const Tensors t(Tq);
      const Attended got = attend(t.q, t.k, t.v, {.mask = causal(offset(-2)), .want_mass = true});
      for (std::size_t head = 0; head < 8; ++head) {
        const auto mass = got.mass.values<float>().subspan(head * 150, 150);
        const double sum = std::accumulate(mass.begin(), mass.end(), 0.0);
        EXPECT_NEAR(sum, static_cast<double>(std::max<std::int64_t>(0, Tq - 2)), 1e-4);
      }
    }
  });
}

TEST(Mass, OfUniformRowsIncludesPadding) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 40}) {
      const Tensors t(Tq);
      const Tensor lens = Tensor::of<std::int64_t>({0, 10}, {2});
      expect_right(t.q, t.k, t.v, {.mask = lengths(lens), .on_empty = OnEmpty::uniform, .want_mass = true});
      const Attended got =
          attend(t.q, t.k, t.v, {.mask = lengths(lens), .on_empty = OnEmpty::uniform, .want_mass = true});
      for (std::size_t j = 0; j < 4 * 150; ++j) {
        EXPECT_NEAR(got.mass.values<float>()[j], static_cast<float>(Tq) / 150, 1e-5f);
      }
    }
  });
}

// A row that is NaN makes NaN of what it sees, and of nothing else.
TEST(Mass, OfANanRowIsNanWhereTheRowSees) {
  on_every_isa([] {
    for (const Weigh& weigh : {softmax(), normalize(), hard(), top_k(3)}) {
      for (const std::int64_t Tq : {4, 40}) {
        const Tensor q = random_tensor({Tq, 8}, 1), k = random_tensor({Tq, 8}, 2), v = random_tensor({Tq, 3}, 3);
        Tensor bad = q.clone();
        bad.values<float>()[2 * 8] = std::nanf("");
        const Attended got =
            attend(bad, k, v, {.mask = causal(), .weigh = weigh, .want_weights = true, .want_mass = true});
        for (std::size_t j = 0; j < static_cast<std::size_t>(Tq); ++j) {
          EXPECT_EQ(std::isnan(got.mass.values<float>()[j]), j <= 2) << weigh_name(weigh) << ", key " << j;
        }
      }
    }
  });
}

TEST(Top, IsTheWeightsSorted) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 4, 5, 60}) {
      for (const std::int64_t Tk : {3, 150, 700}) {
        const Tensors t(Tq, Tk);
        const Attended got =
            attend(t.q, t.k, t.v, {.mask = causal(bottom_right()), .want_weights = true, .want_top = 5});
        for (std::size_t row = 0; row < static_cast<std::size_t>(8 * Tq); ++row) {
          const auto keys = static_cast<std::size_t>(Tk);
          const auto weights = got.weights.values<float>().subspan(row * keys, keys);
          const auto top = got.top_weights.values<float>().subspan(row * 5, 5);
          const auto places = got.top_indices.values<std::int64_t>().subspan(row * 5, 5);
          std::vector<float> sorted(weights.begin(), weights.end());
          std::sort(sorted.begin(), sorted.end(), std::greater<>());
          sorted.resize(std::max<std::size_t>(5, keys), 0);
          for (std::size_t n = 0; n < 5; ++n) {
            // From another walk over the keys, so up to rounding.
            ASSERT_NEAR(top[n], sorted[n], 2e-6f);
            if (places[n] >= 0) {
              ASSERT_NEAR(top[n], weights[static_cast<std::size_t>(places[n])], 2e-6f);
            }
          }
        }
      }
    }
  });
}

TEST(Top, OfFewerKeysThanAskedForEndsInMinusOne) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 40}) {
      const Tensors t(Tq);
      const Tensor lens = Tensor::of<std::int64_t>({2, 0}, {2});
      for (const Weigh& weigh : {softmax(), normalize(), raw(), hard(), top_k(1)}) {
        for (const OnEmpty on_empty : {OnEmpty::zero, OnEmpty::uniform, OnEmpty::nan}) {
          const Attended got =
              attend(t.q, t.k, t.v, {.mask = lengths(lens), .weigh = weigh, .on_empty = on_empty, .want_top = 4});
          for (std::size_t n = 0; n < got.top_indices.values<std::int64_t>().size(); ++n) {
            const std::int64_t place = got.top_indices.values<std::int64_t>()[n];
            const float weight = got.top_weights.values<float>()[n];
            const bool first_sequence = n < got.top_indices.values<std::int64_t>().size() / 2;
            if (first_sequence && n % 4 < 2) {
              ASSERT_TRUE(place == 0 || place == 1);
            } else {
              ASSERT_EQ(place, -1);
              ASSERT_EQ(weight, 0);
            }
          }
        }
      }
    }
  });
}

TEST(Top, EarlierKeysComeFirstAmongEquals) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 40}) {
      for (const std::int64_t Tk : {7, 70, 600}) {
        const Tensor q({Tq, 4}), v = random_tensor({Tk, 3}, 2), k = random_tensor({Tk, 4}, 3);
        for (const Weigh& weigh : {softmax(), raw(), hard(), top_k(2)}) {
          const Attended got = attend(q, k, v, {.score = dot(), .weigh = weigh, .want_top = 5});
          for (std::size_t n = 0; n < static_cast<std::size_t>(Tq * 5); ++n) {
            ASSERT_EQ(got.top_indices.values<std::int64_t>()[n], static_cast<std::int64_t>(n % 5)) << weigh_name(weigh);
          }
        }
      }
    }
  });
}

TEST(Top, TakesMoreThanThereAre) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 20}) {
      for (const std::int64_t top : {1, 8, 9, 16, 17, 33, 100}) {
        Case c{.Tq = Tq, .Tk = 30, .D = 4};
        c.want_top = top;
        expect_right(c);
        c.Tk = 300;
        expect_right(c);
      }
    }
  });
}

TEST(Entropy, IsThatOfEqualWeightsAtMost) {
  on_every_isa([] {
    for (const std::int64_t Tq : {1, 4, 5, 60}) {
      for (const std::int64_t Tk : {1, 2, 150, 700}) {
        const Tensor q({Tq, 4}), k = random_tensor({Tk, 4}, 1), v = random_tensor({Tk, 3}, 2);
        const Attended even = attend(q, k, v, {.want_entropy = true, .want_effective = true});
        for (const float h : even.entropy.values<float>()) {
          ASSERT_NEAR(h, std::log(static_cast<float>(Tk)), 1e-5f * (1 + std::log(static_cast<float>(Tk))));
        }
        // e to the power of an entropy that is off by 8e-5.
        for (const float n : even.effective.values<float>())
          ASSERT_NEAR(n, static_cast<float>(Tk), 1e-4f * static_cast<float>(Tk));
        // One key so much better than the rest that nothing is left for them.
        Tensor added({Tk});
        added.values<float>()[0] = 500;
        const Attended one = attend(q, k, v, {.mask = bias(added), .want_entropy = true, .want_effective = true});
        for (const float h : one.entropy.values<float>()) ASSERT_EQ(h, 0);
        for (const float n : one.effective.values<float>()) ASSERT_EQ(n, 1);
      }
    }
  });
}

TEST(Entropy, OfARowThatSeesNothingIsZeroWhateverItGets) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 40}) {
      const Tensors t(Tq);
      const Tensor lens = Tensor::of<std::int64_t>({0, 0}, {2});
      for (const OnEmpty on_empty : {OnEmpty::zero, OnEmpty::uniform, OnEmpty::nan}) {
        const Attended got = attend(
            t.q, t.k, t.v, {.mask = lengths(lens), .on_empty = on_empty, .want_entropy = true, .want_effective = true});
        for (const float h : got.entropy.values<float>()) ASSERT_EQ(h, 0);
        for (const float n : got.effective.values<float>()) ASSERT_EQ(n, 0);
      }
    }
  });
}

TEST(Entropy, OfNegativeWeightsOrNanIsNan) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 40}) {
      Tensor q({Tq, 1});
      std::ranges::fill(q.values<float>(), 1.0f);
      const Tensor v = random_tensor({3, 2}, 1), negative = Tensor::of<float>({4, -2, 6}, {3, 1}),
                   undefined = Tensor::of<float>({4, std::nanf(""), 6}, {3, 1}),
                   zero = Tensor::of<float>({4, 0, 4}, {3, 1});
      const auto entropy = [&](const Tensor& k, const Weigh& weigh) {
        return attend(q, k, v, {.score = dot(), .weigh = weigh, .want_entropy = true}).entropy.values<float>()[0];
      };
      EXPECT_TRUE(std::isnan(entropy(negative, normalize())));
      for (const Weigh& weigh : {softmax(), normalize(), top_k(2)}) EXPECT_TRUE(std::isnan(entropy(undefined, weigh)));
      EXPECT_FLOAT_EQ(entropy(zero, normalize()), std::log(2.0f)) << "0 ln 0 is 0";
    }
  });
}

TEST(Entropy, SurvivesScoresOfEverySize) {
  on_every_isa([] {
    for (const double magnitude : {1e-3, 1.0, 30.0, 1000.0}) {
      for (const std::int64_t Tq : {3, 18}) {
        Case c{.Tq = Tq, .Tk = 90, .D = 8, .magnitude = magnitude};
        c.want_entropy = c.want_effective = true;
        expect_right(c);
      }
    }
  });
}

TEST(AttendInto, WritesEveryStatisticToAnyStrides) {
  on_every_isa([] {
    for (const std::int64_t Tq : {2, 21}) {
      const Tensors t(Tq, 35);
      const Tensor rows = Tensor::of<std::int64_t>({1, 0}, {2});
      const AttendOptions options = {.mask = causal(top_left()),
                                     .want_rows = rows,
                                     .want_mass = true,
                                     .want_top = 3,
                                     .want_entropy = true,
                                     .want_effective = true};
      const Attended whole = attend(t.q, t.k, t.v, options);
      for (const Layout layout : writable_layouts) {
        SCOPED_TRACE(name_of(layout));
        const auto f32 = Dtype::float32;
        const LaidOut out({2, 4, Tq, 5}, f32, layout), row_weights({2, 4, 2, 35}, f32, layout),
            top({2, 4, Tq, 3}, f32, layout), places({2, 4, Tq, 3}, Dtype::int64, layout),
            mass({2, 4, 35, 1}, f32, layout), entropy({2, 4, Tq, 1}, f32, layout),
            effective({2, 4, Tq, 1}, f32, layout);
        const auto column = [](const LaidOut& x) {
          const MutableView v = x.view();
          return MutableView(v.data(), v.dtype(), {v.extent(0), v.extent(1), v.extent(2)},
                             {v.stride(0), v.stride(1), v.stride(2)});
        };
        attend_into(t.q, t.k, t.v,
                    {.out = out.view(),
                     .row_weights = row_weights.view(),
                     .mass = column(mass),
                     .top_weights = top.view(),
                     .top_indices = places.view(),
                     .entropy = column(entropy),
                     .effective = column(effective)},
                    options);
        EXPECT_TRUE(same_bits(Tensor::copy_of(out.view()), whole.out));
        EXPECT_TRUE(same_bits(Tensor::copy_of(row_weights.view()), whole.row_weights));
        EXPECT_TRUE(same_bits(Tensor::copy_of(top.view()), whole.top_weights));
        EXPECT_TRUE(same_bits(Tensor::copy_of(places.view()), whole.top_indices));
        EXPECT_TRUE(same_bits(Tensor::copy_of(column(mass)), whole.mass));
        EXPECT_TRUE(same_bits(Tensor::copy_of(column(entropy)), whole.entropy));
        EXPECT_TRUE(same_bits(Tensor::copy_of(column(effective)), whole.effective));
        for (const LaidOut* memory : {&out, &row_weights, &top, &places, &mass, &entropy, &effective}) {
          EXPECT_TRUE(memory->gaps_are_untouched());
        }
      }
    }
  });
}

TEST(LogSum, OfNormalizeIsTheLogarithmOfTheSumOfTheKernel) {
  on_every_isa([] {
    for (const std::int64_t Tq : {3, 40}) {
      const Tensors t(Tq);
      const AttendOptions normal = {.score = gaussian(2), .weigh = normalize(), .want_lse = true};
      const AttendOptions as_it_is = {.score = gaussian(2), .weigh = raw(), .want_weights = true};
      const Attended a = attend(t.q, t.k, t.v, normal), b = attend(t.q, t.k, t.v, as_it_is);
      for (std::size_t row = 0; row < static_cast<std::size_t>(8 * Tq); ++row) {
        const auto weights = b.weights.values<float>().subspan(row * 150, 150);
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        EXPECT_NEAR(a.lse.values<float>()[row], std::log(sum), 1e-5);
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
