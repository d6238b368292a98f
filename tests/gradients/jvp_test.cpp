// gradients/jvp_test.cpp: attend_jvp against differences of attend, and against attend_backward, whose transpose it is.
#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/attend_jvp.h>
#include <qkv/error.h>

#include "gradients/check.h"
#include "support/close.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/random.h"
#include "support/stations.h"

namespace qkv::test {
namespace {

std::vector<Stations> smooth_stations() {
  std::vector<Stations> smooth;
  for (const Score::Kind score : {Score::Kind::dot, Score::Kind::scaled_dot, Score::Kind::cosine, Score::Kind::bilinear,
                                  Score::Kind::additive, Score::Kind::gaussian, Score::Kind::constant}) {
    for (const Weigh& weigh : {softmax(), normalize(), raw()}) smooth.push_back({score, weigh});
  }
  return smooth;
}

// A problem in double precision with a direction for its inputs. All arrays are dense.
struct Moving {
  explicit Moving(const Case& c) : problem(without_ties(c)), options(problem.options()) {
    options.want_backward = true;
    options.want_entropy = false;
    dq = random_tensor(problem.q().shape(), 61, Dtype::float64);
    dk = random_tensor(problem.k().shape(), 62, Dtype::float64);
    dv = random_tensor(problem.v().shape(), 63, Dtype::float64);
    for (const Mask::Part& part : options.mask.parts()) {
      if (const auto* bias = std::get_if<mask_part::Bias>(&part)) {
        biases.push_back(Tensor::copy_of(bias->bias, Dtype::float64));
        dbias.push_back(random_tensor(bias->bias.shape(), 64, Dtype::float64));
      }
    }
  }

  AttendTangents tangents() const {
    AttendTangents all{dq, dk, dv};
    all.bias.assign(dbias.begin(), dbias.end());
    return all;
  }
  AttendRates rates() const {
    const Attended answer = attend(problem.q(), problem.k(), problem.v(), options);
    return attend_jvp(problem.q(), problem.k(), problem.v(), answer, tangents(), options);
  }

  // The answer after a step; biases are left as they are.
  Attended after(double step) const {
    const auto moved = [step](const View& x, const Tensor& direction) {
      Tensor to = Tensor::copy_of(x);
      for (std::size_t i = 0; i < to.values<double>().size(); ++i) {
        to.values<double>()[i] += step * direction.values<double>()[i];
      }
      return to;
    };
    return attend(moved(problem.q(), dq), moved(problem.k(), dk), moved(problem.v(), dv), options);
  }

  Problem problem;
  AttendOptions options;
  Tensor dq, dk, dv;
  std::vector<Tensor> biases, dbias;
};

double product(const View& a, const View& b) {
  const Tensor left = Tensor::copy_of(a, Dtype::float64), right = Tensor::copy_of(b, Dtype::float64);
  double sum = 0;
  for (std::size_t i = 0; i < left.values<double>().size(); ++i) {
    sum += left.values<double>()[i] * right.values<double>()[i];
  }
  return sum;
}

Case tiny() {
  Case c = in_double({});
  c.Hk = 1;
  c.Tq = 5;
  c.E = 5;
  c.bandwidth = Bandwidth::one;
  return c;
}

class EverySmoothScoreAndWeighing : public testing::TestWithParam<Stations> {};
INSTANTIATE_TEST_SUITE_P(Jvp, EverySmoothScoreAndWeighing, testing::ValuesIn(smooth_stations()), name_of_stations);

TEST_P(EverySmoothScoreAndWeighing, ChangesAsDifferencesSay) {
  constexpr double step = 1e-5;
  Case c = with_stations(GetParam(), tiny());
  c.masks = {MaskKind::lengths, MaskKind::edit_by};
  c.softcap = 2;
  c.temperature = 0.8;
  const Moving moving(c);
  const Tensor got = moving.rates().out, above = moving.after(step).out, below = moving.after(-step).out;
  double largest = 1e-3;
  for (const double value : got.values<double>()) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < got.values<double>().size(); ++i) {
    const double measured = (above.values<double>()[i] - below.values<double>()[i]) / (2 * step);
    EXPECT_NEAR(got.values<double>()[i], measured, 1e-6 * largest) << "element " << i;
  }
}

// <upstream, rates> = <gradients, tangents>, whatever both are; with log-sum-exp and biases.
void expect_transpose(const Case& c) {
  SCOPED_TRACE(c.text());
  const Moving moving(c);
  const Problem& p = moving.problem;
  const Attended answer = attend(p.q(), p.k(), p.v(), moving.options);
  const Tensor dout = random_tensor(answer.out.shape(), 71, Dtype::float64);
  Tensor dlse;
  if (answer.lse) {
    dlse = random_tensor(answer.lse.shape(), 72, Dtype::float64);
    for (std::size_t i = 0; i < dlse.values<double>().size(); ++i) {
      if (!std::isfinite(answer.lse.values<double>()[i])) dlse.values<double>()[i] = 0;
    }
  }
  AttendWanted wanted;
  wanted.bias = !moving.dbias.empty();
  const AttendGradients d =
      attend_backward(p.q(), p.k(), p.v(), answer, {dout, dlse ? View(dlse) : View()}, moving.options, wanted);
  const AttendRates rates = moving.rates();
  double forward = product(rates.out, dout), size = std::abs(forward);
  if (dlse) forward += product(rates.lse, dlse);
  const double terms[] = {product(d.dq, moving.dq), product(d.dk, moving.dk), product(d.dv, moving.dv)};
  double backward = terms[0] + terms[1] + terms[2];
  for (std::size_t i = 0; i < d.dbias.size(); ++i) backward += product(d.dbias[i], moving.dbias[i]);
  for (const double term : terms) size = std::max(size, std::abs(term));
  EXPECT_NEAR(forward, backward, 1e-9 * std::max(size, 1.0));
}

TEST_P(EverySmoothScoreAndWeighing, IsTheTransposeOfTheGradientUnderEveryMask) {
  for (const MaskKind mask : all_mask_kinds) {
    Case c = with_stations(GetParam(), tiny());
    c.masks = {mask};
    c.seed = static_cast<std::uint64_t>(mask) + 3;
    expect_transpose(c);
    c.softcap = 2;
    c.dropout = 0.3;
    c.parameters_per_head = true;
    c.bandwidth = Bandwidth::per_head_and_coordinate;
    expect_transpose(c);
  }
}

TEST(Jvp, IsTheTransposeOfTheGradientForEverySize) {
  on_every_isa([] {
    for (const Score::Kind score : {Score::Kind::scaled_dot, Score::Kind::additive, Score::Kind::gaussian}) {
      for (const std::int64_t Tq : {1, 3, 17, 150}) {
        for (const std::int64_t Tk : {1, 7, 130, 400}) {
          Case c = tiny();
          c.score = score;
          c.Tq = Tq;
          c.Tk = Tk;
          c.D = 9;
          c.Dv = 17;
          c.masks = {MaskKind::causal};
          expect_transpose(c);
        }
      }
    }
  });
}

TEST(Jvp, OfFloatIsNearThatOfDouble) {
  on_every_isa([] {
    for (const Stations& stations : smooth_stations()) {
      Case c = with_stations(stations, tiny());
      c.Tq = 20;
      c.Tk = 70;
      SCOPED_TRACE(c.text());
      const Moving moving(c);
      const AttendRates exact = moving.rates();
      const auto narrow = [](const View& view) { return Tensor::copy_of(view, Dtype::float32); };
      const Tensor q = narrow(moving.problem.q()), k = narrow(moving.problem.k()), v = narrow(moving.problem.v());
      AttendOptions options = moving.options;
      std::vector<Tensor> held;
      for (View* view : {&options.score.matrix, &options.score.query_weights, &options.score.key_weights,
                         &options.score.hidden_weights, &options.score.bandwidths}) {
        if (*view) *view = held.emplace_back(narrow(*view));
      }
      const Attended answer = attend(q, k, v, options);
      const Tensor dq = narrow(moving.dq), dk = narrow(moving.dk), dv = narrow(moving.dv);
      const AttendRates got = attend_jvp(q, k, v, answer, {dq, dk, dv}, options);
      double largest = 0;
      for (const double value : exact.out.values<double>()) largest = std::max(largest, std::abs(value));
      for (std::size_t i = 0; i < got.out.values<float>().size(); ++i) {
        EXPECT_NEAR(got.out.values<float>()[i], exact.out.values<double>()[i], 1e-4 * largest + 1e-6);
      }
    }
  });
}

TEST(Jvp, IsTheSameBitsForAnyNumberOfThreads) {
  Case c = tiny();
  c.Tq = 300;
  c.Tk = 300;
  Moving moving(c);
  const AttendRates expected = moving.rates();
  for (const int threads : {2, 3, 8}) {
    moving.options.threads = threads;
    EXPECT_TRUE(same_bits(moving.rates().out, expected.out)) << threads;
  }
}

// Keys, values and tangents that nobody, or not everybody, sees.
TEST(Jvp, KeepsPoisonWhereItIs) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  on_every_isa([] {
    for (const Stations& stations : smooth_stations()) {
      Case c = with_stations(stations, tiny());
      c.B = 1;
      c.H = 1;
      c.Tq = 3;
      c.Tk = 3;
      c.masks = {MaskKind::causal};
      SCOPED_TRACE(c.text());
      const Moving moving(c);
      const AttendRates clean = moving.rates();
      for (const View& poisoned :
           {View(moving.problem.k()), View(moving.problem.v()), View(moving.dk), View(moving.dv)}) {
        for (std::int64_t i = 0; i < poisoned.extent(3); ++i) {  // the last key, which only the last query sees
          const_cast<double*>(poisoned.as<double>())[2 * poisoned.stride(2) + i] = nan;
        }
      }
      const AttendRates got = moving.rates();
      for (std::size_t i = 0; i < 2 * 3; ++i) {
        EXPECT_NEAR(got.out.values<double>()[i], clean.out.values<double>()[i], 1e-12) << "element " << i;
      }
      EXPECT_TRUE(std::isnan(got.out.values<double>()[6]));
    }
  });
}

TEST(Jvp, RefusesWhatHasNoTangent) {
  const Tensor x(Shape{2, 3}, Dtype::float32);
  const AttendAnswer answer = attend(x, x, x, {.want_backward = true});
  EXPECT_THROW(attend_jvp(x, x, x, answer, {}, {.score = laplace()}), OptionError);
  EXPECT_THROW(attend_jvp(x, x, x, answer, {}, {.weigh = top_k(1)}), OptionError);
  EXPECT_THROW(attend_jvp(x, x, x, answer, {}, {.weigh = uniform()}), OptionError);
  EXPECT_THROW(attend_jvp(x, x, x, {}, {}), OptionError);
  const Tensor wrong(Shape{2, 4}, Dtype::float32), integers(Shape{2, 3}, Dtype::int32);
  EXPECT_THROW(attend_jvp(x, x, x, answer, {.q = wrong}), ShapeError);
  EXPECT_THROW(attend_jvp(x, x, x, answer, {.v = integers}), DtypeError);
  EXPECT_THROW(attend_jvp(x, x, x, answer, {.bias = {x}}), OptionError);
}

TEST(Jvp, OfExtentsOfZeroIsZeros) {
  for (const int which : {0, 1, 2, 3, 4}) {
    for (const Stations& stations : smooth_stations()) {
      Case c = with_stations(stations, tiny());
      std::int64_t* extents[] = {&c.B, &c.Tq, &c.Tk, &c.D, &c.Dv};
      *extents[which] = 0;
      SCOPED_TRACE(c.text());
      const Moving moving(c);
      const AttendRates rates = moving.rates();
      for (const double value : rates.out.values<double>()) EXPECT_TRUE(value == 0 || which == 3);
    }
  }
}

}  // namespace
}  // namespace qkv::test
