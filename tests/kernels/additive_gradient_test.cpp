// kernels/additive_gradient_test.cpp: the gradients of the additive score, from exponentials and directly.
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block_data.h"
#include "kernels/gradient_data.h"
#include "kernels/gradients.h"

namespace qkv::test {
namespace {

enum class Way { exponentials, direct };

template <class T>
class AdditiveGradientOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AdditiveGradientOf, Types);

// The arguments of one call. NaN wherever the kernel has no business: slopes of lanes behind the last row, and queries
// and keys between `depth` and `stride`. Zeros from `units` to `depth`.
template <class T>
struct Problem {
  Way way;
  int lanes, rows, keys, units, depth, stride;
  Guarded<T> slopes, q, k;
  Fenced<T> dq, dk, dhidden;

  // Projections are random_projection(Random).
  template <class Projection>
  Problem(Way way_, int lanes_, int rows_, int keys_, int units_, const Projection& random_projection)
      : way(way_),
        lanes(lanes_),
        rows(rows_),
        keys(keys_),
        units(units_),
        depth((units + strip() - 1) / strip() * strip()),
        stride(depth + strip()),
        slopes(size(keys * lanes), nan<T>),
        q(size(rows * stride), nan<T>),
        k(size(keys * stride), nan<T>),
        dq(rows * stride),
        dk(keys * stride),
        dhidden(stride) {
    Random random(3);
    for (int j = 0; j < keys; ++j) {
      for (int r = 0; r < rows; ++r) slopes[j * lanes + r] = static_cast<T>(random.normal());
    }
    const auto fill = [&](const Guarded<T>& to, const Fenced<T>& gradient, int count) {
      for (int i = 0; i < count; ++i) {
        for (int e = 0; e < depth; ++e) {
          const double x = random_projection(random);
          const double element = way == Way::direct ? x : std::exp(2 * x);
          to[i * stride + e] = e < units ? static_cast<T>(element) : T(0);
          gradient[i * stride + e] = static_cast<T>(random.normal());
        }
      }
    };
    fill(q, dq, rows);
    fill(k, dk, keys);
    for (int e = 0; e < depth; ++e) dhidden[e] = static_cast<T>(random.normal());
  }

  void run() const {
    const auto& kernels = gradient_kernels<T>();
    (way == Way::direct ? kernels.additive_direct : kernels.additive)(
        {slopes.data(), lanes, rows, keys, depth, q.data(), k.data(), stride, dq.data(), dk.data(), dhidden.data()});
  }
  long double slope(int r, int j) const { return slopes[j * lanes + r]; }

 private:
  static int strip() { return 2 * kernels::panel_kernels<T>(current_isa()).vector; }
  static std::size_t size(int count) { return static_cast<std::size_t>(count); }
};

double normal(Random& random) { return random.normal(); }

// A unit's t and (1 - t^2) / f, with the errors that the kernel's may have. (1 - t^2) is not found by that difference,
// which would cancel here too.
struct Unit {
  long double t, t_error, t_magnitude;
  long double derivative, derivative_error;
};

// With s = 1 / (1 + q k), t = 1 - 2 s and (1 - t^2) / 4 = s (1 - s). The sum 1 + q k is rounded twice, s is good to 3
// units in the last place (6 roundings), and a slope's product with it is rounded once. Errors are relative to s, not
// to the differences, and 1 and 2 s are summed on their own. For s (1 - s) these 9 count once in s and once in 1 - s;
// its own product and difference are rounded too.
template <class T>
Unit by_exponentials(const Problem<T>& p, int r, int j, int e) {
  const long double u = rounding<T>;
  const long double product =
      static_cast<long double>(p.q[r * p.stride + e]) * static_cast<long double>(p.k[j * p.stride + e]);
  const long double s = 1 / (1 + product);
  return {1 - 2 * s, 2 * 9 * u * s, 1 + 2 * s, product * s * s, 20 * u * s};
}

// tanh is relatively off by 3e-7 (float), 6e-16 (double), and by the rounding of its argument. Twice that, and a
// rounding for each factor, is what t^2 is off by; their difference from 1 is rounded once.
template <class T>
Unit directly(const Problem<T>& p, int r, int j, int e) {
  const long double u = rounding<T>;
  const long double x =
      static_cast<long double>(p.q[r * p.stride + e]) + static_cast<long double>(p.k[j * p.stride + e]);
  const long double t = std::tanh(x), cosh = std::cosh(x), derivative = 1 / (cosh * cosh);
  const long double off = std::abs(t) * (sizeof(T) == 4 ? 3e-7L : 6e-16L) + std::abs(x) * derivative * u;
  return {t, off + std::abs(t) * u, std::abs(t), derivative,
          2 * std::abs(t) * (off + std::abs(t) * u) + u * derivative};
}

// Compares what a call left with what it should, from what was there before. A sum rounds each of its terms as often as
// it has terms, and once more to what is already there.
template <class T>
void expect_right(const Problem<T>& p) {
  const std::vector<T> dq(p.dq.data(), p.dq.data() + p.dq.size()), dk(p.dk.data(), p.dk.data() + p.dk.size()),
      dhidden(p.dhidden.data(), p.dhidden.data() + p.dhidden.size());
  p.run();
  const auto sums_from = [](const std::vector<T>& before) {
    std::vector<ExactSum> sums(before.size());
    for (std::size_t i = 0; i < before.size(); ++i) sums[i].add(before[i]);
    return sums;
  };
  auto exact_dq = sums_from(dq), exact_dk = sums_from(dk), exact_dhidden = sums_from(dhidden);
  const auto at = [&](int row, int e) { return static_cast<std::size_t>(row * p.stride + e); };
  for (int r = 0; r < p.rows; ++r) {
    for (int j = 0; j < p.keys; ++j) {
      for (int e = 0; e < p.depth; ++e) {
        const Unit unit = p.way == Way::direct ? directly(p, r, j, e) : by_exponentials(p, r, j, e);
        const long double slope = p.slope(r, j), size = std::abs(slope);
        exact_dq[at(r, e)].add(slope * unit.derivative, size * unit.derivative_error);
        exact_dk[at(j, e)].add(slope * unit.derivative, size * unit.derivative_error);
        exact_dhidden[at(0, e)].add(slope * unit.t, size * unit.t_error, size * unit.t_magnitude);
      }
    }
  }
  const auto expect = [&](const char* what, const Fenced<T>& got, const std::vector<ExactSum>& exact, int roundings) {
    for (int i = 0; i < got.size(); ++i) {
      const ExactSum& sum = exact[static_cast<std::size_t>(i)];
      const bool beyond = i % p.stride >= p.depth;
      ASSERT_LE(std::abs(got[i] - sum.value), beyond ? 0 : sum.template tolerance<T>(roundings))
          << what << ", row " << i / p.stride << ", unit " << i % p.stride;
    }
  };
  expect("dq", p.dq, exact_dq, p.keys + 1);
  expect("dk", p.dk, exact_dk, p.rows + 1);
  expect("dhidden", p.dhidden, exact_dhidden, p.rows + p.keys + 2);
}

TYPED_TEST(AdditiveGradientOf, IsRightAtEverySize) {
  on_every_isa([] {
    const int vector = kernels::panel_kernels<TypeParam>(current_isa()).vector;
    for (const Way way : {Way::exponentials, Way::direct}) {
      for (const int lanes : panel_lanes<TypeParam>()) {
        for (int rows = 1; rows <= lanes; ++rows) {
          for (const int keys : {0, 1, 2, 3, 17}) {
            for (const int units : {1, vector, vector + 1, 2 * vector - 1, 2 * vector, 2 * vector + 1, 6 * vector}) {
              SCOPED_TRACE((way == Way::direct ? "direct, " : "exponentials, ") + std::to_string(rows) + " rows, " +
                           std::to_string(keys) + " keys, " + std::to_string(units) + " units");
              expect_right(Problem<TypeParam>(way, lanes, rows, keys, units, normal));
              if (testing::Test::HasFatalFailure()) return;
            }
          }
        }
      }
    }
  });
}

TYPED_TEST(AdditiveGradientOf, IsRightToTheEdgeOfItsRange) {
  const auto one_of = [](const std::vector<double>& list) {
    return [list](Random& random) { return list[static_cast<std::size_t>(random.below(std::ssize(list)))]; };
  };
  on_every_isa([&] {
    for (const int lanes : panel_lanes<TypeParam>()) {
      expect_right(Problem<TypeParam>(Way::exponentials, lanes, lanes, 40, 35,
                                      one_of({-10.75, -10.5, -5, -1e-3, 0, 1e-3, 5, 10.5, 10.75})));
      expect_right(Problem<TypeParam>(Way::direct, lanes, lanes, 40, 35,
                                      one_of({-1e4, -60, -9, -1e-3, 0, 1e-6, 0.3, 9, 21.5, 45, 1e4})));
    }
  });
}

// What a slope that is NaN has a part in becomes NaN, and nothing else changes.
TYPED_TEST(AdditiveGradientOf, ANanReachesItsRowItsKeyAndTheHiddenUnits) {
  on_every_isa([] {
    for (const Way way : {Way::exponentials, Way::direct}) {
      for (const int lanes : panel_lanes<TypeParam>()) {
        const Problem<TypeParam> clean(way, lanes, lanes, 5, 9, normal), poisoned(way, lanes, lanes, 5, 9, normal);
        const int row = lanes - 1, key = 3, stride = clean.stride;
        poisoned.slopes[key * lanes + row] = nan<TypeParam>;
        clean.run();
        poisoned.run();
        const auto expect = [&](const Fenced<TypeParam>& got, const Fenced<TypeParam>& before, int reached) {
          for (int i = 0; i < got.size(); ++i) {
            const bool is_reached = i / stride == reached && i % stride < clean.depth;
            ASSERT_TRUE(same_number(got[i], is_reached ? nan<TypeParam> : before[i])) << i;
          }
        };
        expect(poisoned.dq, clean.dq, row);
        expect(poisoned.dk, clean.dk, key);
        expect(poisoned.dhidden, clean.dhidden, 0);
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
