// attention/score_properties_test.cpp: equations that hold for every score and weighing.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "reference/elements.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr std::int64_t few_and_many[] = {1, 4, 5, 30};

// Weighings of which all data has a clear answer: random scores do not tie, and positive ones do not cancel.
const std::vector<Weigh> weighings = {softmax(), normalize(), raw(), hard(), uniform(), top_k(3)};

// As close as two roundings of the same: values weigh at most `scale`.
void expect_near(const View& a, const View& b, double scale = 1) {
  ASSERT_EQ(a.shape(), b.shape());
  const std::vector<double> x = reference::elements<double>(a), y = reference::elements<double>(b);
  for (std::size_t n = 0; n < x.size(); ++n) {
    ASSERT_NEAR(x[n], y[n], 2e-5 * (scale + std::abs(y[n]))) << "element " << n;
  }
}

template <class Body>
void for_every_station(Body body) {
  on_every_isa([&] {
    for (const Score::Kind score : all_score_kinds) {
      for (const Weigh& weigh : weighings) {
        SCOPED_TRACE(std::string(score_name(score)) + " and " + weigh_name(weigh));
        body(score, weigh);
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

// Row order[j] of x becomes row j.
Tensor permuted(const View& x, const std::vector<std::int64_t>& order) {
  Tensor y = Tensor::copy_of(x);
  const auto T = static_cast<std::size_t>(x.extent(2)), width = static_cast<std::size_t>(x.extent(3));
  const Tensor from = Tensor::copy_of(x);
  for (std::size_t head = 0; head < static_cast<std::size_t>(x.extent(0) * x.extent(1)); ++head) {
    for (std::size_t j = 0; j < T; ++j) {
      const auto row = from.values<float>().subspan((head * T + static_cast<std::size_t>(order[j])) * width, width);
      std::copy(row.begin(), row.end(),
                y.values<float>().begin() + static_cast<std::ptrdiff_t>((head * T + j) * width));
    }
  }
  return y;
}

TEST(ScoreProperties, PermutingTheRecordsChangesNothing) {
  for_every_station([](Score::Kind score, const Weigh& weigh) {
    for (const std::int64_t Tq : few_and_many) {
      const std::int64_t Tk = 261;
      Problem p({.B = 1, .H = 2, .Hk = 1, .Tq = Tq, .Tk = Tk, .D = 5, .Dv = 4, .score = score, .weigh = weigh});
      if (weigh.kind == Weigh::Kind::hard || weigh.kind == Weigh::Kind::top_k) {
        // Kernels and constants that tie go by place; a bias of a key's own settles who comes first.
        if (score == Score::Kind::boxcar || score == Score::Kind::constant) continue;
        // No twins here.
        for (std::int64_t n = 0; n < Tk * p.k().extent(3); ++n) {
          set_element(p.k(), n, reference::element(p.k(), n) + 1e-3 * static_cast<double>(n % 97));
        }
      }
      std::vector<std::int64_t> order(static_cast<std::size_t>(Tk));
      std::iota(order.begin(), order.end(), 0);
      Random random(5);
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
      }
      const Attended a = attend(p.q(), p.k(), p.v(), p.options());
      const Attended b = attend(p.q(), permuted(p.k(), order), permuted(p.v(), order), p.options());
      expect_near(a.out, b.out, weigh.kind == Weigh::Kind::raw ? 100 : 1);
      if (a.lse) expect_near(a.lse, b.lse);
    }
  });
}

TEST(ScoreProperties, ACausalPrefixEqualsTheShorterRun) {
  for_every_station([](Score::Kind score, const Weigh& weigh) {
    const Problem p({.B = 1, .H = 2, .Hk = 1, .Tq = 70, .Tk = 70, .D = 5, .Dv = 4, .score = score, .weigh = weigh});
    AttendOptions options = p.options();
    options.mask = causal();
    const Tensor whole = attend(p.q(), p.k(), p.v(), options).out;
    for (const std::int64_t T : {1, 4, 5, 17, 33, 69}) {
      const Tensor prefix = attend(p.q().slice(2, 0, T), p.k().slice(2, 0, T), p.v().slice(2, 0, T), options).out;
      expect_near(prefix, whole.view().slice(2, 0, T), weigh.kind == Weigh::Kind::raw ? 20 : 1);
    }
  });
}

TEST(ScoreProperties, DecodingStepByStepEqualsTheFullPass) {
  for_every_station([](Score::Kind score, const Weigh& weigh) {
    const Problem p({.B = 2, .H = 2, .Hk = 1, .Tq = 40, .Tk = 40, .D = 5, .Dv = 4, .score = score, .weigh = weigh});
    AttendOptions options = p.options();
    options.mask = causal(bottom_right());
    const Tensor whole = attend(p.q(), p.k(), p.v(), options).out;
    for (std::int64_t t = 0; t < 40; ++t) {
      const Tensor step = attend(p.q().slice(2, t, 1), p.k().slice(2, 0, t + 1), p.v().slice(2, 0, t + 1), options).out;
      expect_near(step, whole.view().slice(2, t, 1), weigh.kind == Weigh::Kind::raw ? 20 : 1);
    }
  });
}

TEST(ScoreProperties, GroupedHeadsEqualRepeatedHeads) {
  for_every_station([](Score::Kind score, const Weigh& weigh) {
    for (const std::int64_t Tq : few_and_many) {
      Case c{.B = 2, .H = 6, .Hk = 2, .Tq = Tq, .Tk = 60, .D = 5, .Dv = 4, .score = score, .weigh = weigh};
      c.parameters_per_head = true;
      c.bandwidth = Bandwidth::per_head;
      const Problem p(c);
      // A view in which each key head stands three times: stride 0 inside the group, then as one axis by copying.
      const auto repeated = [](const View& x) {
        Tensor y({2, 6, x.extent(2), x.extent(3)});
        const std::vector<float> from = reference::elements<float>(x);
        const std::size_t head = static_cast<std::size_t>(x.extent(2) * x.extent(3));
        for (std::size_t n = 0; n < 12; ++n) {
          const std::size_t key_head = n / 6 * 2 + n % 6 / 3;
          std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(key_head * head), head,
                      y.values<float>().begin() + static_cast<std::ptrdiff_t>(n * head));
        }
        return y;
      };
      expect_near(attend(p.q(), p.k(), p.v(), p.options()).out,
                  attend(p.q(), repeated(p.k()), repeated(p.v()), p.options()).out,
                  weigh.kind == Weigh::Kind::raw ? 20 : 1);
    }
  });
}

// Queries are independent: one asked alone gets what it gets among others. Not bit for bit: another kernel may serve
// it.
TEST(ScoreProperties, AQueryAloneGetsWhatItGetsAmongOthers) {
  for_every_station([](Score::Kind score, const Weigh& weigh) {
    const Problem p({.B = 1, .H = 2, .Hk = 1, .Tq = 20, .Tk = 90, .D = 5, .Dv = 4, .score = score, .weigh = weigh});
    const Tensor all = attend(p.q(), p.k(), p.v(), p.options()).out;
    for (const std::int64_t i : {0, 7, 19}) {
      expect_near(attend(p.q().slice(2, i, 1), p.k(), p.v(), p.options()).out, all.view().slice(2, i, 1),
                  weigh.kind == Weigh::Kind::raw ? 20 : 1);
    }
  });
}

TEST(ScoreProperties, TheAnswerIsLinearInTheValues) {
  for_every_station([](Score::Kind score, const Weigh& weigh) {
    for (const std::int64_t Tq : few_and_many) {
      const Problem p({.B = 1, .H = 2, .Hk = 1, .Tq = Tq, .Tk = 50, .D = 5, .Dv = 4, .score = score, .weigh = weigh});
      Tensor ones({1, 1, 50, 1});
      std::ranges::fill(ones.values<float>(), 1.0f);
      // Pooled ones are the sum of the weights.
      AttendOptions options = p.options();
      options.want_weights = true;
      const Attended got = attend(p.q(), p.k(), ones, options);
      for (std::size_t row = 0; row < static_cast<std::size_t>(2 * Tq); ++row) {
        const auto weights = got.weights.values<float>().subspan(row * 50, 50);
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        ASSERT_NEAR(got.out.values<float>()[row], sum, 1e-5 * (1 + std::abs(sum)));
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
