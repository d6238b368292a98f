// ops/gru_test.cpp: recurrent units: right by their formulas, whatever the lengths, layers and directions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/ops.h>

#include "reference/elements.h"
#include "reference/gru.h"
#include "support/close.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/random.h"

namespace qkv::test {
namespace {

// A problem with random numbers, as parameters.
struct Problem {
  Variable x;
  std::vector<GruWeights> weights;
  GruOptions options;
  Tensor lengths;

  struct Sizes {
    std::int64_t B, T, I, H;
    std::int64_t layers = 1;
    bool both_directions = false;
    bool with_h0 = true, with_lengths = true;
    Dtype dtype = Dtype::float32;
  };
  explicit Problem(const Sizes& s) {
    const std::int64_t D = s.both_directions ? 2 : 1;
    std::uint64_t seed = 1;
    const auto make = [&](const Shape& shape, double scale) {
      return parameter(random_tensor(shape, seed++, s.dtype, scale));
    };
    x = make({s.B, s.T, s.I}, 1);
    const double scale = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, s.H)));
    for (std::int64_t i = 0; i < s.layers * D; ++i) {
      weights.push_back({make({3 * s.H, i < D ? s.I : D * s.H}, scale), make({3 * s.H, s.H}, scale),
                         make({3 * s.H}, 0.5), make({3 * s.H}, 0.5)});
    }
    options.both_directions = s.both_directions;
    if (s.with_h0) options.h0 = make({s.layers * D, s.B, s.H}, 1);
    if (s.with_lengths) {
      lengths = random_integers({s.B}, 5, 0, s.T);
      options.lengths = lengths;
    }
  }

  GruStates run() const { return gru(x, weights, options); }
  reference::Gru as_reference() const {
    reference::Gru same{{}, options.both_directions, options.h0.value(), options.lengths};
    for (const GruWeights& set : weights) {
      same.weights.push_back({set.W_ih.value(), set.W_hh.value(), set.b_ih.value(), set.b_hh.value()});
    }
    return same;
  }
};

void expect_right(const Problem& problem) {
  const GruStates got = problem.run();
  const auto exact = reference::gru<double>(problem.x.value(), problem.as_reference());
  const auto plain = reference::gru<float>(problem.x.value(), problem.as_reference());
  EXPECT_TRUE(is_close(got.all.value(), {exact.all, plain.all}, 8));
  EXPECT_TRUE(is_close(got.last.value(), {exact.last, plain.last}, 8));
}

TEST(Gru, IsWhatItsFormulasSay) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      for (const std::int64_t H : {1, 3, 4, 7, 8, 9, 16, 17, 33}) {
        SCOPED_TRACE(H);
        expect_right(Problem({.B = 3, .T = 5, .I = 4, .H = H, .dtype = dtype}));
      }
    }
  });
}

TEST(Gru, HasLayersAndDirectionsAndLengths) {
  for (const std::int64_t layers : {1, 2, 3}) {
    for (const bool both : {false, true}) {
      for (const bool with_lengths : {false, true}) {
        for (const bool with_h0 : {false, true}) {
          expect_right(Problem({.B = 7,
                                .T = 6,
                                .I = 5,
                                .H = 10,
                                .layers = layers,
                                .both_directions = both,
                                .with_h0 = with_h0,
                                .with_lengths = with_lengths}));
        }
      }
    }
  }
}

TEST(Gru, NeedsNoBiases) {
  Problem problem({.B = 3, .T = 4, .I = 5, .H = 6});
  problem.weights[0].b_ih = {};
  expect_right(problem);
  problem.weights[0].b_hh = {};
  expect_right(problem);
}

// h' by hand: with W = 0, r = z = sigmoid(0) = 1/2 and n = tanh(b_in + b_hn / 2).
TEST(Gru, GivesNumbersThatCanBeComputedByHand) {
  const Variable x(Tensor({1, 2, 1})), zero(Tensor({3, 1}));
  const Variable b_ih(Tensor::of({0.0f, 0.0f, 0.25f}, {3})), b_hh(Tensor::of({0.0f, 0.0f, 0.5f}, {3}));
  const GruStates states = gru(x, {{zero, zero, b_ih, b_hh}}, {.h0 = Variable(Tensor::of({2.0f}, {1, 1, 1}))});
  const float n = std::tanh(0.5f), first = (n + 2) / 2;
  EXPECT_FLOAT_EQ(states.all.value().as<float>()[0], first);
  EXPECT_FLOAT_EQ(states.all.value().as<float>()[1], (n + first) / 2);
  EXPECT_FLOAT_EQ(states.last.value().as<float>()[0], (n + first) / 2);
}

TEST(Gru, HasTheGradientsOfItsFormulas) {
  const Problem problem(
      {.B = 5, .T = 7, .I = 6, .H = 11, .with_h0 = false, .with_lengths = false, .dtype = Dtype::float64});
  const GruStates states = problem.run();
  const Tensor upstream = random_tensor(states.all.shape(), 77, Dtype::float64);
  backward(states.all, upstream);
  const auto exact = reference::gru_gradients(problem.x.value(), problem.as_reference().weights[0], upstream);
  const auto expect_near = [](const Variable& input, const std::vector<double>& right) {
    const auto got = reference::elements<double>(input.grad());
    ASSERT_EQ(got.size(), right.size());
    for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(got[i], right[i], 1e-12);
  };
  expect_near(problem.x, exact.dx);
  expect_near(problem.weights[0].W_ih, exact.dW_ih);
  expect_near(problem.weights[0].W_hh, exact.dW_hh);
  expect_near(problem.weights[0].b_ih, exact.db_ih);
  expect_near(problem.weights[0].b_hh, exact.db_hh);
}

// The states and the gradients by x and h0 of sequences in a batch are, bit for bit, those of a batch of one.
TEST(Gru, ASequenceDoesNotDependOnItsBatch) {
  on_every_isa([] {
    const Problem batch({.B = 9, .T = 6, .I = 5, .H = 19, .layers = 2, .both_directions = true});
    const GruStates together = batch.run();
    const Tensor upstream = random_tensor(together.all.shape(), 8);
    backward(together.all, upstream);
    const auto part = [](const View& view, int axis, std::int64_t b) {
      return Tensor::copy_of(view.slice(axis, b, 1));
    };
    for (std::int64_t b = 0; b < 9; ++b) {
      Problem alone({.B = 1, .T = 6, .I = 5, .H = 19, .layers = 2, .both_directions = true});
      alone.x = parameter(part(batch.x.value(), 0, b));
      alone.weights = batch.weights;
      alone.options.h0 = parameter(part(batch.options.h0.value(), 1, b));
      alone.lengths = part(batch.lengths, 0, b);
      alone.options.lengths = alone.lengths;
      const GruStates states = alone.run();
      EXPECT_TRUE(same_bits(states.all.value(), part(together.all.value(), 0, b)));
      EXPECT_TRUE(same_bits(states.last.value(), part(together.last.value(), 1, b)));
      backward(states.all, part(upstream, 0, b));
      EXPECT_TRUE(same_bits(alone.x.grad(), part(batch.x.grad(), 0, b)));
      EXPECT_TRUE(same_bits(alone.options.h0.grad(), part(batch.options.h0.grad(), 1, b)));
    }
  });
}

// NaN in the padding of x and of the upstream gradient changes nothing, and outputs and gradients are 0 there.
TEST(Gru, DoesNotReadBeyondAnEnd) {
  Problem problem({.B = 4, .T = 5, .I = 3, .H = 9, .layers = 2, .both_directions = true});
  const GruStates clean = problem.run();
  Tensor upstream = random_tensor(clean.all.shape(), 8);
  backward(clean.all, upstream);
  const Tensor dx = Tensor::copy_of(problem.x.grad()), dW = Tensor::copy_of(problem.weights[1].W_hh.grad());
  problem.x.zero_grad();
  problem.weights[1].W_hh.zero_grad();

  const auto poison = [&](MutableView padded) {
    for (std::int64_t b = 0; b < 4; ++b) {
      for (std::int64_t t = problem.lengths.values<std::int64_t>()[static_cast<std::size_t>(b)]; t < 5; ++t) {
        std::fill_n(padded.as<float>() + (b * 5 + t) * padded.extent(2), padded.extent(2),
                    std::numeric_limits<float>::quiet_NaN());
      }
    }
  };
  poison(problem.x.mutable_value());
  poison(upstream);
  const GruStates poisoned = problem.run();
  EXPECT_TRUE(same_bits(poisoned.all.value(), clean.all.value()));
  EXPECT_TRUE(same_bits(poisoned.last.value(), clean.last.value()));
  backward(poisoned.all, upstream);
  EXPECT_TRUE(same_bits(problem.x.grad(), dx));
  EXPECT_TRUE(same_bits(problem.weights[1].W_hh.grad(), dW));
  for (std::int64_t b = 0; b < 4; ++b) {
    for (std::int64_t t = problem.lengths.values<std::int64_t>()[static_cast<std::size_t>(b)]; t < 5; ++t) {
      for (std::int64_t i = 0; i < 18; ++i) EXPECT_EQ(clean.all.value().as<float>()[(b * 5 + t) * 18 + i], 0);
      for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(dx.view().as<float>()[(b * 5 + t) * 3 + i], 0);
    }
  }
}

TEST(Gru, ASequenceWithoutStepsEndsWhereItBegan) {
  Problem problem({.B = 2, .T = 3, .I = 4, .H = 5});
  problem.lengths.values<std::int64_t>()[0] = 0;
  problem.lengths.values<std::int64_t>()[1] = 3;
  const GruStates states = problem.run();
  EXPECT_TRUE(same_bits(states.last.value().slice(1, 0, 1), problem.options.h0.value().slice(1, 0, 1)));
  const Tensor upstream = random_tensor(states.last.shape(), 8);
  backward(states.last, upstream);
  EXPECT_TRUE(same_bits(problem.options.h0.grad().slice(1, 0, 1), upstream.view().slice(1, 0, 1)));
}

TEST(Gru, TakesLengthsOfBothDtypes) {
  Problem problem({.B = 4, .T = 5, .I = 3, .H = 6});
  const GruStates wide = problem.run();
  const Tensor narrow = Tensor::copy_of(problem.lengths, Dtype::int32);
  problem.options.lengths = narrow;
  EXPECT_TRUE(same_bits(problem.run().all.value(), wide.all.value()));
}

TEST(Gru, KeepsLargeGatesAndNaN) {
  Problem problem({.B = 1, .T = 2, .I = 1, .H = 8, .with_h0 = false, .with_lengths = false});
  for (const float huge : {1e4f, -1e4f, 1e30f}) {
    problem.x.mutable_value().as<float>()[0] = huge;
    const GruStates states = problem.run();
    for (const double h : reference::elements<double>(states.all.value())) EXPECT_LE(std::abs(h), 1);
    backward(states.all, random_tensor(states.all.shape(), 3));
    for (const double g : reference::elements<double>(problem.weights[0].W_hh.grad())) EXPECT_TRUE(std::isfinite(g));
    problem.weights[0].W_hh.zero_grad();
  }
  problem.x.mutable_value().as<float>()[1] = std::numeric_limits<float>::quiet_NaN();
  const GruStates states = problem.run();
  const auto h = reference::elements<double>(states.all.value());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_FALSE(std::isnan(h[i]));
  for (std::size_t i = 8; i < 16; ++i) EXPECT_TRUE(std::isnan(h[i]));
}

TEST(Gru, DropsStatesBetweenLayersInTrainingOnly) {
  Problem problem({.B = 8, .T = 6, .I = 4, .H = 32, .layers = 2, .both_directions = true, .with_lengths = false});
  const GruStates whole = problem.run();
  problem.options.dropout = 0.5;
  EXPECT_TRUE(same_bits(problem.run().all.value(), whole.all.value()));
  problem.options.training = true;
  problem.options.seed = 7;
  const GruStates dropped = problem.run(), again = problem.run();
  EXPECT_TRUE(same_bits(again.all.value(), dropped.all.value()));
  // The first layer is before all dropout.
  EXPECT_TRUE(same_bits(dropped.last.value().slice(0, 0, 2), whole.last.value().slice(0, 0, 2)));
  EXPECT_FALSE(same_bits(dropped.last.value().slice(0, 2, 2), whole.last.value().slice(0, 2, 2)));
  problem.options.seed = 8;
  EXPECT_FALSE(same_bits(problem.run().all.value(), dropped.all.value()));
}

TEST(Gru, CanBeWalkedAgain) {
  const Problem problem({.B = 3, .T = 4, .I = 5, .H = 6, .layers = 2});
  const GruStates states = problem.run();
  const Tensor upstream = random_tensor(states.all.shape(), 8);
  backward(states.all, upstream, {.retain = true});
  const Tensor once = Tensor::copy_of(problem.weights[0].W_hh.grad());
  problem.weights[0].W_hh.zero_grad();
  backward(states.all, upstream);
  EXPECT_TRUE(same_bits(problem.weights[0].W_hh.grad(), once));
}

TEST(Gru, RefusesWhatDoesNotFit) {
  const Problem right({.B = 2, .T = 3, .I = 4, .H = 5, .layers = 2});
  const auto refused = [&]<class E>(E, auto change, std::initializer_list<std::string> parts) {
    Problem wrong({.B = 2, .T = 3, .I = 4, .H = 5, .layers = 2});
    change(wrong);
    expect_error<E>([&] { wrong.run(); }, parts);
  };
  const Tensor three({3}, Dtype::int64), high = Tensor::of({3, 4}, {2}), halves({2});
  const auto variable = [](const Shape& shape) { return Variable(Tensor(shape)); };
  refused(ShapeError(""), [&](Problem& p) { p.x = variable({2, 3}); }, {"gru", "[2, 3]"});
  refused(ShapeError(""), [&](Problem& p) { p.x = variable({2, 3, 7}); }, {"gru", "W_ih", "[2, 3, 7]", "[15, 4]"});
  refused(ShapeError(""), [&](Problem& p) { p.weights[1].W_hh = variable({15, 4}); }, {"gru", "W_hh", "[15, 4]"});
  refused(ShapeError(""), [&](Problem& p) { p.weights[1].W_ih = variable({15, 4}); }, {"gru", "[15, 4]", "[15, 5]"});
  refused(ShapeError(""), [&](Problem& p) { p.weights[0].b_hh = variable({5}); }, {"gru", "bias", "[5]"});
  refused(ShapeError(""), [&](Problem& p) { p.weights[0].W_hh = {}; }, {"gru", "absent"});
  refused(ShapeError(""), [&](Problem& p) { p.options.h0 = variable({1, 2, 5}); }, {"h0", "[1, 2, 5]", "[2, 2, 5]"});
  refused(ShapeError(""), [&](Problem& p) { p.options.lengths = three; }, {"gru", "lengths", "[3]", "[2]"});
  refused(ShapeError(""), [&](Problem& p) { p.options.lengths = high; }, {"gru", "4", "sequence 1", "T = 3"});
  refused(DtypeError(""), [&](Problem& p) { p.options.lengths = halves; }, {"gru", "lengths", "float32"});
  refused(DtypeError(""), [&](Problem& p) { p.x = Variable(Tensor({2, 3, 4}, Dtype::float64)); }, {"gru", "float64"});
  refused(OptionError(""), [&](Problem& p) { p.weights.clear(); }, {"gru", "weights"});
  refused(OptionError(""),
          [&](Problem& p) {
            p.options.both_directions = true;
            p.weights.pop_back();
          },
          {"gru", "1", "2 directions"});
  refused(OptionError(""), [&](Problem& p) { p.options.dropout = 1; }, {"gru", "dropout", "1"});
  refused(OptionError(""),
          [&](Problem& p) {
            p.options.dropout = 0.5;
            p.options.training = true;
          },
          {"gru", "seed"});
}

}  // namespace
}  // namespace qkv::test
