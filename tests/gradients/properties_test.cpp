// gradients/properties_test.cpp: what holds for the gradients of attend whatever the numbers are.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/attend_op.h>
#include <qkv/error.h>
#include <qkv/ops.h>

#include "gradients/check.h"
#include "support/close.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/layout.h"
#include "support/pages.h"
#include "support/random.h"
#include "support/stations.h"

namespace qkv::test {
namespace {

AttendGradients gradients_of(const Problem& p, const View& dout, const AttendWanted& wanted = all_of_score) {
  AttendOptions options = p.options();
  options.want_backward = true;
  const Attended answer = attend(p.q(), p.k(), p.v(), options);
  return attend_backward(p.q(), p.k(), p.v(), answer, {.out = dout}, options, wanted);
}

Tensor upstream_of(const Problem& p, Dtype dtype = Dtype::float32, std::uint64_t seed = 5) {
  return random_tensor({p.q().extent(0), p.q().extent(1), p.q().extent(2), p.v().extent(3)}, seed, dtype);
}

void expect_same_bits(const AttendGradients& a, const AttendGradients& b) {
  EXPECT_TRUE(same_bits(a.dq, b.dq)) << "in dq";
  EXPECT_TRUE(same_bits(a.dk, b.dk)) << "in dk";
  EXPECT_TRUE(same_bits(a.dv, b.dv)) << "in dv";
  EXPECT_TRUE(same_bits(a.dmatrix, b.dmatrix)) << "in dM";
  EXPECT_TRUE(same_bits(a.dquery_weights, b.dquery_weights)) << "in dWq";
  EXPECT_TRUE(same_bits(a.dkey_weights, b.dkey_weights)) << "in dWk";
  EXPECT_TRUE(same_bits(a.dhidden_weights, b.dhidden_weights)) << "in dw";
  EXPECT_TRUE(same_bits(a.dbandwidths, b.dbandwidths)) << "in dsigma";
  for (std::size_t i = 0; i < a.dbias.size(); ++i) EXPECT_TRUE(same_bits(a.dbias[i], b.dbias[i])) << "in a bias";
}

double element(const View& dense, std::int64_t i) {
  return dense.dtype() == Dtype::float64 ? dense.as<double>()[i] : static_cast<double>(dense.as<float>()[i]);
}

TEST(Gradients, AreTheSameBitsForAnyNumberOfThreads) {
  for (const Score::Kind score : {Score::Kind::scaled_dot, Score::Kind::bilinear, Score::Kind::additive,
                                  Score::Kind::gaussian, Score::Kind::laplace}) {
    for (const std::int64_t B : {1, 3}) {
      Case c;
      c.B = B;
      c.H = B == 1 ? 1 : 4;
      c.Hk = B == 1 ? 1 : 2;
      c.Tq = 150;
      c.Tk = 1300;  // three ranges of keys
      c.D = 16;
      c.Dv = 17;
      c.score = score;
      c.masks = {MaskKind::causal, MaskKind::bias};
      c.bandwidth = Bandwidth::one;
      SCOPED_TRACE(c.text());
      Problem p(c);
      const Tensor dout = upstream_of(p);
      const AttendWanted wanted{.score = true, .bias = true};
      p.options().threads = 1;
      const AttendGradients one = gradients_of(p, dout, wanted);
      for (const int threads : {2, 3, 8}) {
        p.options().threads = threads;
        expect_same_bits(gradients_of(p, dout, wanted), one);
      }
    }
  }
}

TEST(Gradients, OfASequenceDoNotDependOnItsBatch) {
  Case c;
  c.B = 3;
  c.Tq = 20;
  c.Tk = 140;
  c.masks = {MaskKind::lengths};
  const Problem p(c);
  const Tensor dout = upstream_of(p);
  const AttendGradients batch = gradients_of(p, dout);
  for (std::int64_t b = 0; b < c.B; ++b) {
    AttendOptions options = p.options();
    options.want_backward = true;
    const View lens = std::get<mask_part::Lengths>(p.options().mask.parts()[0]).lengths;
    options.mask = lengths(lens.slice(0, b, 1));
    const View q = View(p.q()).slice(0, b, 1), k = View(p.k()).slice(0, b, 1), v = View(p.v()).slice(0, b, 1);
    const Attended answer = attend(q, k, v, options);
    const AttendGradients alone = attend_backward(q, k, v, answer, {.out = View(dout).slice(0, b, 1)}, options, {});
    EXPECT_TRUE(same_bits(alone.dq, Tensor::copy_of(View(batch.dq).slice(0, b, 1))));
    EXPECT_TRUE(same_bits(alone.dk, Tensor::copy_of(View(batch.dk).slice(0, b, 1))));
    EXPECT_TRUE(same_bits(alone.dv, Tensor::copy_of(View(batch.dv).slice(0, b, 1))));
  }
}

class EveryScoreAndWeighingInFloat : public testing::TestWithParam<Stations> {};
INSTANTIATE_TEST_SUITE_P(Gradients, EveryScoreAndWeighingInFloat, testing::ValuesIn(all_stations()), name_of_stations);

// A float32 result is off by some roundings of the largest numbers that are summed: those of its own row of sums.
void expect_near(const View& got, const View& exact, const char* name, double tolerance = 3e-5) {
  if (!got) return;
  double largest = 0;
  for (std::int64_t i = 0; i < exact.elements(); ++i) largest = std::max(largest, std::abs(element(exact, i)));
  for (std::int64_t i = 0; i < exact.elements(); ++i) {
    ASSERT_NEAR(element(got, i), element(exact, i), tolerance * largest + 1e-7) << name << ", element " << i;
  }
}

TEST_P(EveryScoreAndWeighingInFloat, IsNearWhatDoubleGives) {
  on_every_isa([] {
    for (const auto& masks : {std::vector<MaskKind>{}, {MaskKind::causal}, {MaskKind::keep}}) {
      Case c = with_stations(GetParam(), {});
      c.Hk = 1;
      c.Tq = 37;
      c.Tk = 150;
      c.D = 9;
      c.Dv = 10;
      c.masks = masks;
      c.bandwidth = Bandwidth::one;
      SCOPED_TRACE(c.text());
      const Problem p = without_ties(c);
      const Tensor q = Tensor::copy_of(p.q(), Dtype::float64), k = Tensor::copy_of(p.k(), Dtype::float64),
                   v = Tensor::copy_of(p.v(), Dtype::float64), dout = upstream_of(p);
      const AttendGradients got = gradients_of(p, dout);
      AttendOptions options = p.options();
      options.want_backward = true;
      std::vector<Tensor> held;
      for (View* view : {&options.score.matrix, &options.score.query_weights, &options.score.key_weights,
                         &options.score.hidden_weights, &options.score.bandwidths}) {
        if (!*view) continue;
        held.push_back(Tensor::copy_of(*view, Dtype::float64));
        *view = held.back();
      }
      const Attended answer = attend(q, k, v, options);
      const Tensor wide = Tensor::copy_of(dout, Dtype::float64);
      const AttendGradients exact = attend_backward(q, k, v, answer, {.out = wide}, options, all_of_score);
      expect_near(got.dq, exact.dq, "dq");
      expect_near(got.dk, exact.dk, "dk");
      expect_near(got.dv, exact.dv, "dv");
      expect_near(got.dmatrix, exact.dmatrix, "dM");
      expect_near(got.dquery_weights, exact.dquery_weights, "dWq");
      expect_near(got.dkey_weights, exact.dkey_weights, "dWk");
      expect_near(got.dhidden_weights, exact.dhidden_weights, "dw");
      expect_near(got.dbandwidths, exact.dbandwidths, "dsigma", 2e-4);  // one sum over all pairs, of either sign
    }
  });
}

TEST_P(EveryScoreAndWeighingInFloat, OfEveryLayoutIsTheSame) {
  Case c = with_stations(GetParam(), {});
  c.masks = {MaskKind::window};
  const Problem dense = without_ties(c);
  const Tensor dout = upstream_of(dense);
  const AttendGradients expected = gradients_of(dense, dout);
  for (const Layout layout : writable_layouts) {
    c.layout = layout;
    SCOPED_TRACE(c.text());
    expect_same_bits(gradients_of(without_ties(c), dout), expected);
  }
}

// Of upstream gradients, too, and of values wider than keys.
TEST(Gradients, OfEveryLayoutOfUpstreamAreTheSame) {
  Case c;
  c.Tq = 40;
  c.D = 3;
  c.Dv = 50;
  const Problem p = without_ties(c);
  const Tensor dout = upstream_of(p);
  const AttendGradients expected = gradients_of(p, dout);
  const LaidOut spread(Tensor::copy_of(dout), Layout::spread);
  expect_same_bits(gradients_of(p, spread.view()), expected);
}

TEST_P(EveryScoreAndWeighingInFloat, OfExtentsOfZeroIsZeros) {
  for (const int which : {0, 1, 2, 3, 4}) {
    Case c = with_stations(GetParam(), {});
    std::int64_t* extents[] = {&c.B, &c.Tq, &c.Tk, &c.D, &c.Dv};
    *extents[which] = 0;
    if (GetParam().score == Score::Kind::yours && which == 3) continue;  // the function divides by D
    SCOPED_TRACE(c.text());
    const Problem p = without_ties(c);
    const AttendGradients got = gradients_of(p, upstream_of(p));
    EXPECT_EQ(got.dq.shape(), p.q().shape());
    EXPECT_EQ(got.dk.shape(), p.k().shape());
    EXPECT_EQ(got.dv.shape(), p.v().shape());
  }
}

// 1 - u^2 is rounded otherwise on the two ways: forwards such a key is just inside, backwards on the edge.
TEST(Gradients, AreFiniteWhereAKeyLiesOnTheEdgeOfEpanechnikov) {
  constexpr double sigma = 1.00244140625;
  Tensor q({16, 1}), k({2, 1}), v({2, 1}), up({16, 1});
  k.values<float>()[1] = static_cast<float>(sigma);
  v.values<float>()[0] = 1;
  v.values<float>()[1] = -1;
  for (float& x : up.values<float>()) x = 1;
  on_every_isa([&] {
    const AttendOptions options{.score = epanechnikov(sigma), .temperature = 2, .want_backward = true};
    const AttendGradients d = attend_backward(q, k, v, attend(q, k, v, options), {.out = up}, options);
    for (std::int64_t i = 0; i < 2; ++i) EXPECT_TRUE(std::isfinite(element(d.dk, i))) << "key " << i;
    EXPECT_TRUE(std::isfinite(element(d.dq, 0)));
  });
}

// What some rows may not see must not reach them, nor they it, whatever it is.
TEST(Gradients, KeepPoisonWhereItIs) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  on_every_isa([] {
    for (const Score::Kind score : all_score_kinds) {
      Case c;
      c.B = 1;
      c.H = c.Hk = 1;
      c.Tq = c.Tk = 20;
      c.score = score;
      c.masks = {MaskKind::causal};
      c.alignment = Alignment::Kind::top_left;
      SCOPED_TRACE(c.text());
      Problem clean(c), dirty(c);
      Tensor dout = upstream_of(clean);
      const AttendGradients expected = gradients_of(clean, dout);
      // Key and value 15 are seen by queries 15 and later only.
      for (const MutableView& view : {dirty.k(), dirty.v()}) {
        for (std::int64_t c2 = 0; c2 < view.extent(3); ++c2) set_element(view, 15 * view.extent(3) + c2, nan);
      }
      const AttendGradients got = gradients_of(dirty, dout);
      for (std::int64_t i = 0; i < 15; ++i) {
        for (std::int64_t d = 0; d < c.D; ++d) {
          ASSERT_NEAR(element(got.dq, i * c.D + d), element(expected.dq, i * c.D + d), 1e-5) << "query " << i;
        }
      }
      // An upstream gradient of query 3 that is NaN reaches keys 0..3 and no others.
      Tensor bad = dout.clone();
      for (std::int64_t d = 0; d < c.Dv; ++d) set_element(bad.view(), 3 * c.Dv + d, nan);
      const AttendGradients spread = gradients_of(clean, bad);
      for (std::int64_t j = 4; j < c.Tk; ++j) {
        for (std::int64_t d = 0; d < c.Dv; ++d) {
          ASSERT_FALSE(std::isnan(element(spread.dv, j * c.Dv + d))) << "value " << j;
        }
        for (std::int64_t d = 0; d < c.D; ++d) {
          ASSERT_FALSE(std::isnan(element(spread.dk, j * c.D + d))) << "key " << j;
        }
      }
    }
  });
}

TEST(Gradients, OfQueriesThatSeeNothingAreExactlyZero) {
  for (const OnEmpty on_empty : all_answers_to_empty) {
    for (const Weigh& weigh : all_weighings()) {
      Case c;
      c.on_empty = on_empty;
      c.weigh = weigh;
      const Problem p = without_ties(c);
      AttendOptions options = p.options();
      options.want_backward = true;
      const std::vector<std::int64_t> lens = {0, 4};
      options.mask = lengths(View(lens, {2}));
      options.want_lse = false;
      const Attended answer = attend(p.q(), p.k(), p.v(), options);
      const AttendGradients got = attend_backward(p.q(), p.k(), p.v(), answer, {.out = upstream_of(p)}, options);
      for (const Tensor* gradient : {&got.dq, &got.dk, &got.dv}) {
        for (std::int64_t i = 0; i < gradient->elements() / 2; ++i) {
          ASSERT_EQ(element(*gradient, i), 0) << static_cast<int>(on_empty) << " " << weigh_name(weigh);
        }
      }
    }
  }
}

TEST(Gradients, DoNotReadWhatNobodySees) {
  for (const Score::Kind score : all_score_kinds) {
    Case c;
    c.B = 1;
    c.H = c.Hk = 1;
    c.Tk = 12;
    c.Dv = c.D;
    c.score = score;
    const Problem p(c);
    RowsOnPages k(p.k()), v(p.v());
    for (std::int64_t j = 7; j < c.Tk; ++j) {
      k.forbid(j);
      v.forbid(j);
    }
    AttendOptions options = p.options();
    options.want_backward = true;
    const std::vector<std::int64_t> lens = {7};
    options.mask = lengths(View(lens, {1}));
    const Attended answer = attend(p.q(), k.view(), v.view(), options);
    attend_backward(p.q(), k.view(), v.view(), answer, {.out = upstream_of(p)}, options, all_of_score);
  }
}

TEST(Gradients, OfGroupedHeadsAreSumsOverTheGroup) {
  Case c = in_double({});
  c.H = 4;
  c.Hk = 2;
  const Problem p(c);
  const Tensor dout = upstream_of(p, Dtype::float64);
  const AttendGradients grouped = gradients_of(p, dout);
  Tensor k({c.B, 4, c.Tk, c.D}, Dtype::float64), v({c.B, 4, c.Tk, c.Dv}, Dtype::float64);
  const auto repeat = [&](const View& from, Tensor& to) {
    const std::int64_t size = from.extent(2) * from.extent(3);
    for (std::int64_t i = 0; i < c.B * 4; ++i) {
      std::copy_n(from.as<double>() + (i / 4 * 2 + i % 4 / 2) * size, size, to.values<double>().begin() + i * size);
    }
  };
  repeat(p.k(), k);
  repeat(p.v(), v);
  AttendOptions options = p.options();
  options.want_backward = true;
  const Attended answer = attend(p.q(), k, v, options);
  const AttendGradients repeated = attend_backward(p.q(), k, v, answer, {.out = dout}, options);
  const auto expect_sum = [&](const Tensor& of_group, const Tensor& of_heads, std::int64_t size) {
    for (std::int64_t i = 0; i < of_group.elements(); ++i) {
      const std::int64_t head = i / size, at = i % size, first = (head / 2 * 4 + head % 2 * 2) * size + at;
      EXPECT_NEAR(element(of_group, i), element(of_heads, first) + element(of_heads, first + size), 1e-12);
    }
  };
  expect_sum(grouped.dk, repeated.dk, c.Tk * c.D);
  expect_sum(grouped.dv, repeated.dv, c.Tk * c.Dv);
}

// Biases of every shape that broadcasts, slopes, scale and softcap, by gradcheck of the op on the tape.
TEST(AttendOnTheTape, HasTheGradientsOfAllThatItIsGiven) {
  const auto values = [](const Shape& shape, std::uint64_t seed) { return random_tensor(shape, seed, Dtype::float64); };
  std::vector<Tensor> tensors;
  tensors.push_back(values({2, 2, 3, 4}, 1));
  tensors.push_back(values({2, 1, 5, 4}, 2));
  tensors.push_back(values({2, 1, 5, 2}, 3));
  tensors.push_back(Tensor::of<double>({0.7}, Shape{}));
  tensors.push_back(Tensor::of<double>({1.5}, Shape{}));
  tensors.push_back(values({2}, 6));
  for (const Shape& shape : {Shape{2, 2, 3, 5}, Shape{3, 5}, Shape{2, 1, 1, 5}, Shape{3, 1}, Shape{1}}) {
    tensors.push_back(values(shape, tensors.size() + 1));
  }
  std::vector<View> inputs(tensors.begin(), tensors.end());
  for (const bool statistics : {false, true}) {
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Variable>& x) {
          AttendVariables variables{.q = x[0], .k = x[1], .v = x[2], .scale = x[3], .softcap = x[4], .slopes = x[5]};
          AttendOptions options;
          options.mask = alibi(x[5].value(), top_left()) & causal();
          options.temperature = 0.8;
          for (std::size_t i = 6; i < x.size(); ++i) {
            options.mask &= bias(x[i].value());
            variables.biases.push_back(x[i]);
          }
          options.want_lse = options.want_entropy = statistics;
          const AttendedVariables answer = attend(variables, options);
          return statistics ? sum(answer.out) + sum(answer.lse * answer.entropy) : answer.out;
        },
        inputs);
    EXPECT_TRUE(result) << result.message;
  }
}

TEST(AttendOnTheTape, RefusesWhatHasNoGradient) {
  const Variable x = parameter(random_tensor({3, 4}, 1));
  expect_error<OptionError>([&] { attend(x, x, x, {.want_mass = true}); }, {"tape", "out, lse and entropy"});
  const Tensor other({3}, Dtype::float32);
  expect_error<OptionError>(
      [&] { attend({.q = x, .k = x, .v = x, .biases = {parameter(random_tensor({3}, 2))}}, {.mask = bias(other)}); },
      {"a bias", "mask"});
}

TEST(Gradients, AreRefusedWithoutWhatTheyNeed) {
  const Problem p{Case{}};
  const Attended answer = attend(p.q(), p.k(), p.v(), {});
  const Tensor dout = upstream_of(p);
  expect_error<OptionError>([&] { attend_backward(p.q(), p.k(), p.v(), answer, {.out = dout}); }, {"want_backward"});
  const Attended good = attend(p.q(), p.k(), p.v(), {.want_backward = true});
  expect_error<ShapeError>([&] { attend_backward(p.q(), p.k(), p.v(), good, {.out = p.q()}); }, {"upstream.out"});
  const auto edit = [](const ScoreBlock<float>&) {};
  expect_error<OptionError>([&] { attend_backward(p.q(), p.k(), p.v(), good, {.out = dout}, {.mask = edit_by(edit)}); },
                            {"edit_by", "derivative"});
}

}  // namespace
}  // namespace qkv::test
