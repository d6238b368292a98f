// attention/far_keys_test.cpp: gaussians of keys far from the origin and far from each other (S16). Their expansion
// into products and norms loses every digit there unless something is done about it.
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/attend.h>

#include "reference/attend.h"
#include "reference/elements.h"
#include "support/close.h"
#include "support/isas.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr std::int64_t few_and_many[] = {1, 4, 5, 40};

// Normal numbers around a place that may differ from row to row; every row of queries near a row of keys.
struct Records {
  Tensor q, k, v;
};
Records around(std::int64_t Tq, std::int64_t Tk, std::int64_t D, const std::vector<double>& places, double spread = 1) {
  Records r{Tensor({1, 2, Tq, D}), Tensor({1, 1, Tk, D}), random_tensor({1, 1, Tk, 4}, 3)};
  Random random(1);
  const auto fill = [&](Tensor& x, std::int64_t T) {
    for (std::int64_t n = 0; n < x.elements(); ++n) {
      const double place = places[static_cast<std::size_t>(n / D % T) % places.size()];
      set_element(x.view(), n, place + spread * random.normal());
    }
  };
  fill(r.q, Tq);
  fill(r.k, Tk);
  return r;
}

// A score of u^2 / 2 that is computed in float32 is wrong by some roundings of itself; where products and norms
// stand in for distances, by 1e-4 at most on top. Weights are wrong by as much, relatively; of scores only those count
// whose keys weigh something.
void expect_right_up_to_the_distance(const Records& r, const AttendOptions& options) {
  const Attended got = attend(r.q, r.k, r.v, options);
  const auto exact = reference::attend<double>(r.q, r.k, r.v, options);
  const auto keys = static_cast<std::size_t>(r.k.shape()[2]);
  const double value = largest_magnitude(r.v);
  for (std::size_t row = 0; row < exact.lse.size(); ++row) {
    double score = 0;
    for (std::size_t j = 0; j < keys; ++j) {
      if (exact.weights[row * keys + j] > 1e-6) score = std::max(score, std::abs(exact.weighed[row * keys + j]));
    }
    const double tolerance = 2e-4 + 16 * 0x1p-24 * score;
    for (std::size_t e = 0; e < 4; ++e) {
      ASSERT_NEAR(got.out.values<float>()[row * 4 + e], exact.out[row * 4 + e], tolerance * value)
          << "row " << row << ", scores up to " << score;
    }
    ASSERT_NEAR(got.lse.values<float>()[row], exact.lse[row], tolerance + 0x1p-23 * std::abs(exact.lse[row]));
    for (std::size_t j = 0; j < keys; ++j) {
      ASSERT_NEAR(got.weights.values<float>()[row * keys + j], exact.weights[row * keys + j], tolerance);
    }
  }
}

constexpr double bandwidths[] = {0.01, 0.1, 1, 10, 100};

TEST(FarKeys, AroundOneFarPlace) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const std::int64_t D : {1, 8, 33}) {
        for (const double place : {1e2, 1e4, -1e6}) {
          const Records r = around(Tq, 200, D, {place});
          for (const double sigma : bandwidths) {
            SCOPED_TRACE("Tq " + std::to_string(Tq) + ", D " + std::to_string(D) + ", place " + std::to_string(place) +
                         ", sigma " + std::to_string(sigma));
            expect_right_up_to_the_distance(r, {.score = gaussian(sigma), .want_lse = true, .want_weights = true});
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

// No centre is near all of them.
TEST(FarKeys, InClustersFarApart) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const std::int64_t D : {1, 8}) {
        for (const double apart : {1e2, 1e4}) {
          const Records r = around(Tq, 300, D, {0, apart, -apart});
          for (const double sigma : bandwidths) {
            SCOPED_TRACE("Tq " + std::to_string(Tq) + ", D " + std::to_string(D) + ", apart " + std::to_string(apart) +
                         ", sigma " + std::to_string(sigma));
            expect_right_up_to_the_distance(r, {.score = gaussian(sigma), .want_lse = true, .want_weights = true});
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  });
}

TEST(FarKeys, WithABandwidthPerCoordinate) {
  on_every_isa([] {
    const Tensor sigma = Tensor::of<float>({0.01f, 100, 1, 10, 0.1f, 1}, {6}),
                 per_head = Tensor::of<float>({0.1f, 10, 1, 1, 100, 2, 1, 1, 0.01f, 1, 1, 5}, {2, 6});
    for (const std::int64_t Tq : few_and_many) {
      for (const std::vector<double>& places : {std::vector<double>{1e4}, {0, 1e4}}) {
        const Records r = around(Tq, 200, 6, places);
        for (const Tensor* each : {&sigma, &per_head}) {
          expect_right_up_to_the_distance(r, {.score = gaussian(*each), .want_lse = true, .want_weights = true});
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(FarKeys, UnderEveryWeighing) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const std::vector<double>& places : {std::vector<double>{1e4}, {0, 1e4, -1e4}}) {
        const Records r = around(Tq, 200, 5, places);
        for (const Weigh& weigh : {normalize(), raw(), top_k(4)}) {
          const AttendOptions options = {.score = gaussian(1), .weigh = weigh, .want_weights = true};
          const Attended got = attend(r.q, r.k, r.v, options);
          const auto exact = reference::attend<double>(r.q, r.k, r.v, options);
          for (std::size_t n = 0; n < exact.weights.size(); ++n) {
            ASSERT_NEAR(got.weights.values<float>()[n], exact.weights[n], 3e-4) << n;
          }
        }
        // The nearest neighbour is the nearest.
        const AttendOptions nearest = {.score = gaussian(1), .weigh = hard(), .want_partial = true};
        const Attended got = attend(r.q, r.k, r.v, nearest);
        const auto exact = reference::attend<double>(r.q, r.k, r.v, nearest);
        for (std::size_t row = 0; row < exact.index.size(); ++row) {
          const auto place = static_cast<std::size_t>(got.index.values<std::int64_t>()[row]);
          ASSERT_LT(place, 200u);
          ASSERT_NEAR(exact.weighed[row * 200 + place], exact.state[row], 4e-4) << "row " << row;
        }
      }
    }
  });
}

// Moved all together by a number that is exact in float32, nothing changes: what is near the origin and what is far are
// the same question.
TEST(FarKeys, MovingQueriesAndKeysTogetherChangesNothing) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Tensor qi = random_integers({1, 1, Tq, 4}, 1, -128, 128),
                   ki = random_integers({1, 1, 150, 4}, 2, -128, 128);
      const Tensor v = random_tensor({1, 1, 150, 3}, 3);
      const auto moved = [](const Tensor& x, float by) {
        Tensor y(x.shape());
        for (std::size_t n = 0; n < y.values<float>().size(); ++n) {
          y.values<float>()[n] = by + static_cast<float>(x.values<std::int64_t>()[n]) / 64;
        }
        return y;
      };
      const Attended here = attend(moved(qi, 0), moved(ki, 0), v, {.score = gaussian(0.7), .want_lse = true});
      for (const float by : {1024.0f, -16384.0f, 131072.0f}) {
        const Attended there = attend(moved(qi, by), moved(ki, by), v, {.score = gaussian(0.7), .want_lse = true});
        for (std::size_t n = 0; n < here.out.values<float>().size(); ++n) {
          ASSERT_NEAR(there.out.values<float>()[n], here.out.values<float>()[n], 5e-4f) << "moved by " << by;
        }
        for (std::size_t n = 0; n < here.lse.values<float>().size(); ++n) {
          ASSERT_NEAR(there.lse.values<float>()[n], here.lse.values<float>()[n], 2e-4f) << "moved by " << by;
        }
      }
    }
  });
}

// One key far away among near ones, excluded or seen: the near ones keep their weights.
TEST(FarKeys, OneOutlierDoesNotSpoilTheOthers) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      for (const double far : {1e3, 1e6, 1e18}) {
        for (const bool excluded : {true, false}) {
          Records r = around(Tq, 100, 4, {0});
          for (std::int64_t d = 0; d < 4; ++d) set_element(r.k.view(), 57 * 4 + d, far);
          Tensor kept({100}, Dtype::boolean);
          std::ranges::fill(kept.values<bool>(), true);
          kept.values<bool>()[57] = !excluded;
          SCOPED_TRACE("far " + std::to_string(far) + (excluded ? ", excluded" : ", seen"));
          expect_right_up_to_the_distance(
              r, {.score = gaussian(1), .mask = keep(kept), .want_lse = true, .want_weights = true});
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

TEST(FarKeys, InFloat64AndFloat16) {
  on_every_isa([] {
    for (const std::int64_t Tq : few_and_many) {
      const Records r = around(Tq, 100, 4, {1e4, -1e4});
      const auto as = [](const Tensor& x, Dtype dtype) { return Tensor::copy_of(x, dtype); };
      const Tensor q = as(r.q, Dtype::float64), k = as(r.k, Dtype::float64), v = as(r.v, Dtype::float64);
      for (const double sigma : {0.1, 1.0, 10.0}) {
        const AttendOptions options = {.score = gaussian(sigma)};
        const Attended got = attend(q, k, v, options);
        const auto exact = reference::attend<double>(q, k, v, options);
        for (std::size_t n = 0; n < exact.out.size(); ++n) {
          // eps of float64 times |k|^2 / sigma^2, were it expanded.
          ASSERT_NEAR(got.out.values<double>()[n], exact.out[n], 1e-5);
        }
        const Records near = around(Tq, 100, 4, {40, -40});
        const Tensor q16 = as(near.q, Dtype::float16), k16 = as(near.k, Dtype::float16),
                     v16 = as(near.v, Dtype::float16);
        AttendOptions half = options;
        half.out_dtype = Dtype::float32;
        const Attended got16 = attend(q16, k16, v16, half);
        const auto exact16 = reference::attend<double>(q16, k16, v16, half);
        for (std::size_t n = 0; n < exact16.out.size(); ++n) {
          ASSERT_NEAR(got16.out.values<float>()[n], exact16.out[n], 2e-3) << "sigma " << sigma;
        }
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
