// gradients/prepared_test.cpp: keys that were prepared on the tape get the gradients that keys of each ask would get.
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/attend_op.h>
#include <qkv/error.h>
#include <qkv/ops.h>

#include "gradients/check.h"
#include "support/random.h"
#include "support/stations.h"

namespace qkv::test {
namespace {

constexpr int asks = 3;

// Three asks of the same keys, each of its own queries, and the weights of their outputs in a loss.
struct Asked {
  explicit Asked(const Case& c) : problem(c) {
    const Score& score = problem.options().score;
    const auto variable = [](const View& view) { return view ? parameter(Tensor::copy_of(view)) : Variable(); };
    for (int i = 0; i < asks; ++i) {
      queries[static_cast<std::size_t>(i)] =
          parameter(random_tensor(problem.q().shape(), static_cast<std::uint64_t>(20 + i), Dtype::float64));
    }
    keys = {.q = {},
            .k = variable(problem.k()),
            .v = variable(problem.v()),
            .matrix = variable(score.matrix),
            .query_weights = variable(score.query_weights),
            .key_weights = variable(score.key_weights),
            .hidden_weights = variable(score.hidden_weights),
            .bandwidths = variable(score.bandwidths)};
  }

  AttendOptions options() const {
    AttendOptions with = problem.options();
    with.score = scaled_dot();
    return with;
  }

  // The gradients of everything, summed over the asks.
  std::vector<Tensor> gradients(bool prepared) const {
    std::vector<Variable> all(queries.begin(), queries.end());
    for (const Variable* x : {&keys.k, &keys.v, &keys.matrix, &keys.query_weights, &keys.key_weights,
                              &keys.hidden_weights, &keys.bandwidths}) {
      if (*x) all.push_back(*x);
    }
    for (const Variable& x : all) x.zero_grad();
    Variable loss;
    PreparedVariables made;
    if (prepared) made = prepare(keys, problem.options().score);
    for (int i = 0; i < asks; ++i) {
      AttendVariables ask = prepared ? AttendVariables{} : keys;
      ask.q = queries[static_cast<std::size_t>(i)];
      const Variable out = prepared ? attend(ask, made, options()).out : attend(ask, problem.options()).out;
      const Variable term =
          sum(out * Variable(random_tensor(out.shape(), static_cast<std::uint64_t>(40 + i), Dtype::float64)));
      loss = loss ? loss + term : term;
    }
    made = {};  // asks keep what they need
    backward(loss);
    std::vector<Tensor> result;
    for (const Variable& x : all) result.push_back(x.grad() ? Tensor::copy_of(x.grad()) : Tensor(x.shape(), x.dtype()));
    return result;
  }

  Problem problem;
  std::array<Variable, asks> queries;
  AttendVariables keys;
};

void expect_same_gradients(const Case& c) {
  SCOPED_TRACE(c.text());
  const Asked asked(c);
  const std::vector<Tensor> expected = asked.gradients(false), got = asked.gradients(true);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_EQ(got[i].shape(), expected[i].shape());
    const auto a = got[i].values<double>(), b = expected[i].values<double>();
    for (std::size_t e = 0; e < a.size(); ++e) EXPECT_NEAR(a[e], b[e], 1e-10 * std::max(1.0, std::abs(b[e])));
  }
}

Case small() {
  Case c = in_double({});
  c.Hk = 1;
  c.want_lse = false;
  c.bandwidth = Bandwidth::one;
  return c;
}

class PreparedOnTheTape : public testing::TestWithParam<Score::Kind> {};
INSTANTIATE_TEST_SUITE_P(Gradients, PreparedOnTheTape, testing::ValuesIn(all_score_kinds),
                         [](const auto& kind) { return std::string(score_name(kind.param)); });

TEST_P(PreparedOnTheTape, GivesTheGradientsOfTheSameKeysAskedOneByOne) {
  for (const std::int64_t queries : {1, 3, 6}) {
    for (const bool per_head : {false, true}) {
      for (const MaskKind mask : {MaskKind::lengths, MaskKind::causal}) {
        Case c = small();
        c.Tq = queries;
        c.score = GetParam();
        c.parameters_per_head = per_head;
        c.masks = {mask};
        if (GetParam() == Score::Kind::bilinear || GetParam() == Score::Kind::additive) c.Dk = 4;
        expect_same_gradients(c);
      }
    }
  }
}

// The projections are looked at where they are seen alone.
TEST(PreparedAdditive, DoesNotReadKeysBeyondTheirLengths) {
  const std::int64_t B = 2, Tk = 5, D = 3, E = 4;
  Tensor k = random_tensor(Shape{B, Tk, D}, 1, Dtype::float64), v = random_tensor(Shape{B, Tk, 2}, 2, Dtype::float64);
  const std::vector<std::int64_t> lens = {5, 2};
  for (std::int64_t j = 2; j < Tk; ++j) {
    for (std::int64_t c = 0; c < D; ++c) {
      k.values<double>()[static_cast<std::size_t>((Tk + j) * D + c)] = std::numeric_limits<double>::quiet_NaN();
    }
  }
  const Variable keys = parameter(std::move(k)), Wk = parameter(random_tensor(Shape{E, D}, 3, Dtype::float64));
  const Variable Wq = parameter(random_tensor(Shape{E, D}, 4, Dtype::float64));
  const Variable w = parameter(random_tensor(Shape{E}, 5, Dtype::float64));
  const View valid(lens, {B});
  const PreparedVariables made = prepare(
      {.q = {}, .k = keys, .v = Variable(std::move(v)), .query_weights = Wq, .key_weights = Wk, .hidden_weights = w},
      additive(Wq.value(), Wk.value(), w.value()), valid);
  const Variable q = parameter(random_tensor(Shape{B, 1, D}, 6, Dtype::float64));
  backward(sum(attend({.q = q, .k = {}, .v = {}}, made, {.mask = lengths(valid)}).out));
  for (const Variable& x : {keys, Wk, Wq, w, q}) {
    for (std::int64_t i = 0; i < x.grad().elements(); ++i) EXPECT_TRUE(std::isfinite(x.grad().as<double>()[i]));
  }
  for (std::int64_t i = 0; i < 3 * D; ++i) EXPECT_EQ(keys.grad().as<double>()[(Tk + 2) * D + i], 0);
}

TEST(PreparedOnTheTape, RefusesWhatBelongsElsewhere) {
  const Variable x = parameter(Tensor(Shape{2, 3}, Dtype::float32));
  EXPECT_THROW(prepare({.q = x, .k = x, .v = x}), OptionError);
  const PreparedVariables keys = prepare({.q = {}, .k = x, .v = x});
  EXPECT_THROW(attend({.q = x, .k = x, .v = {}}, keys), OptionError);
  EXPECT_THROW(attend({.q = x, .k = {}, .v = {}}, keys, {.score = dot()}), OptionError);
}

}  // namespace
}  // namespace qkv::test
