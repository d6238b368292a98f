// optim/optimizers_test.cpp: steps against the formulas, written down naively in double precision.
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/ops.h>
#include <qkv/optim.h>
#include <qkv/threads.h>

#include "reference/elements.h"
#include "support/close.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr std::int64_t count = 37;  // on both sides of every vector

// One number of a parameter, with all that an optimiser remembers of it.
struct Number {
  double p = 0, a = 0, b = 0;
};
using Formula = std::function<void(Number&, double gradient, int step)>;

Formula sgd_formula(const SgdOptions& o) {
  return [o](Number& n, double g, int step) {
    g += o.weight_decay * n.p;
    if (o.momentum != 0) {
      n.a = step == 1 ? g : o.momentum * n.a + (1 - o.dampening) * g;
      g = o.nesterov ? g + o.momentum * n.a : n.a;
    }
    n.p -= o.rate * g;
  };
}

Formula adam_formula(const AdamOptions& o, bool decoupled) {
  return [o, decoupled](Number& n, double g, int step) {
    if (decoupled) {
      n.p -= o.rate * o.weight_decay * n.p;
    } else {
      g += o.weight_decay * n.p;
    }
    n.a = o.beta1 * n.a + (1 - o.beta1) * g;
    n.b = o.beta2 * n.b + (1 - o.beta2) * g * g;
    const double m = n.a / (1 - std::pow(o.beta1, step)), v = n.b / (1 - std::pow(o.beta2, step));
    n.p -= o.rate * m / (std::sqrt(v) + o.epsilon);
  };
}

// The gradient of sum(c x) is c.
void give_gradient(const Variable& x, std::uint64_t seed) {
  x.zero_grad();
  backward(sum(x * Variable(Tensor::copy_of(random_tensor(x.shape(), seed), x.dtype()))));
}

template <class Make>
void expect_formula(Make make, const Formula& formula) {
  on_every_isa([&] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      const Variable x = parameter(Tensor::copy_of(random_tensor({count}, 1), dtype));
      std::vector<Number> numbers;
      for (const double p : reference::elements<double>(x.value())) numbers.push_back({.p = p});
      const auto optimizer = make(std::vector<NamedParameter>{{"x", x}});
      for (int step = 1; step <= 5; ++step) {
        give_gradient(x, static_cast<std::uint64_t>(10 + step));
        const std::vector<double> gradient = reference::elements<double>(x.grad());
        optimizer->step();
        for (std::size_t i = 0; i < numbers.size(); ++i) formula(numbers[i], gradient[i], step);
      }
      const std::vector<double> got = reference::elements<double>(x.value());
      // A few roundings a step.
      const double allowed = dtype == Dtype::float64 ? 1e-14 : 2e-6;
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], numbers[i].p, allowed) << "element " << i;
    }
  });
}

template <class T, class Options>
auto making(const Options& options) {
  return
      [options](std::vector<NamedParameter> parameters) { return std::make_unique<T>(std::move(parameters), options); };
}

TEST(Optimizers, SgdIsItsFormula) {
  for (const SgdOptions& o :
       {SgdOptions{.rate = 0.1}, SgdOptions{.rate = 0.1, .weight_decay = 0.3}, SgdOptions{.rate = 0.1, .momentum = 0.9},
        SgdOptions{.rate = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
        SgdOptions{.rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1}}) {
    expect_formula(making<Sgd>(o), sgd_formula(o));
  }
}

TEST(Optimizers, AdamIsItsFormula) {
  for (const AdamOptions& o : {AdamOptions{.rate = 0.01}, AdamOptions{.rate = 0.1, .beta1 = 0.7, .beta2 = 0.9},
                               AdamOptions{.rate = 0.01, .epsilon = 0.1, .weight_decay = 0.2}}) {
    expect_formula(making<Adam>(o), adam_formula(o, false));
    expect_formula(making<AdamW>(o), adam_formula(o, true));
  }
}

TEST(Optimizers, AParameterWithoutAGradientStays) {
  const Variable x = parameter(random_tensor({3}, 1)), y = parameter(random_tensor({3}, 2));
  const Tensor before = Tensor::copy_of(y.value());
  AdamW adam({{"x", x}, {"y", y}}, {.weight_decay = 0.1});
  give_gradient(x, 3);
  adam.step();
  EXPECT_TRUE(same_bits(y.value(), before));
}

TEST(Optimizers, ZeroGradForgetsAllGradients) {
  const Variable x = parameter(random_tensor({3}, 1));
  Sgd sgd({{"x", x}});
  give_gradient(x, 2);
  sgd.zero_grad();
  EXPECT_FALSE(x.grad());
}

const Tensor ids = Tensor::of<std::int64_t>({5, 2, 5}, {3});

void look_up(const Variable& table) {
  table.zero_grad();
  backward(sum(embedding(table, ids)));
}

std::vector<bool> changed_rows(const Variable& table, const Tensor& before) {
  std::vector<bool> changed;
  for (std::int64_t r = 0; r < table.extent(0); ++r) {
    const auto row = [&](const View& view) { return Tensor::copy_of(view.slice(0, r, 1)); };
    changed.push_back(!same_bits(row(table.value()), row(before)));
  }
  return changed;
}

TEST(Optimizers, RowsThatWereNotLookedUpStayWhereThatIsMeant) {
  const std::vector<bool> looked_up = {false, false, true, false, false, true, false};
  const Variable table = parameter(random_tensor({7, 4}, 1));
  const NamedParameter named{"table", table};
  Sgd sgd({named}, {.rate = 0.1});
  Adam lazy({named}, {.lazy_rows = true});
  AdamW lazy_decay({named}, {.weight_decay = 0.1, .lazy_rows = true});
  for (Optimizer* optimizer : std::initializer_list<Optimizer*>{&sgd, &lazy, &lazy_decay}) {
    const Tensor before = Tensor::copy_of(table.value());
    look_up(table);
    optimizer->step();
    EXPECT_EQ(changed_rows(table, before), looked_up);
  }
}

TEST(Optimizers, RowsThatWereNotLookedUpMoveOnWithAdam) {
  const Variable table = parameter(random_tensor({7, 4}, 1));
  Adam adam({{"table", table}});
  give_gradient(table, 1);
  adam.step();
  const Tensor before = Tensor::copy_of(table.value());
  look_up(table);
  adam.step();
  EXPECT_EQ(changed_rows(table, before), std::vector<bool>(7, true));
}

TEST(Optimizers, StepsByRowsAreTheStepsOfDenseGradients) {
  const Variable rows = parameter(random_tensor({7, 4}, 1)), dense = parameter(random_tensor({7, 4}, 1));
  Sgd by_rows({{"x", rows}}, {.rate = 0.1}), by_all({{"x", dense}}, {.rate = 0.1});
  look_up(rows);
  dense.zero_grad();
  backward(sum(embedding(dense, ids)) + sum(scale(dense, 0)));
  ASSERT_TRUE(rows.grad_rows());
  ASSERT_FALSE(dense.grad_rows());
  by_rows.step();
  by_all.step();
  EXPECT_TRUE(same_bits(rows.value(), dense.value()));
}

TEST(Optimizers, StateHasNamesAndCanBeCarriedOver) {
  const auto make = [] { return parameter(random_tensor({3, 2}, 1, Dtype::float64)); };
  const Variable x = make(), y = make();
  Adam first({{"layer.weight", x}}, {.rate = 0.1});
  give_gradient(x, 1);
  first.step();
  Adam second({{"layer.weight", y}}, {.rate = 0.1});
  auto from = first.state(), to = second.state();
  ASSERT_EQ(from.size(), 3u);
  EXPECT_EQ(from[0].name, "layer.weight.step");
  EXPECT_EQ(from[1].name, "layer.weight.exp_avg");
  EXPECT_EQ(from[2].name, "layer.weight.exp_avg_sq");
  EXPECT_EQ(from[0].value.as<std::int64_t>()[0], 1);
  const auto copy = [](const View& source, const MutableView& target) {
    std::memcpy(target.data(), source.data(), static_cast<std::size_t>(source.elements()) * size_of(source.dtype()));
  };
  for (std::size_t i = 0; i < from.size(); ++i) copy(from[i].value, to[i].value);
  copy(x.value(), y.mutable_value());
  give_gradient(x, 2);
  give_gradient(y, 2);
  first.step();
  second.step();
  EXPECT_TRUE(same_bits(x.value(), y.value()));
  EXPECT_EQ(Sgd({{"x", x}}, {.momentum = 0.5}).state()[1].name, "x.momentum_buffer");
  EXPECT_EQ(Sgd({{"x", x}}).state().size(), 1u);
}

TEST(Optimizers, StepsHaveTheSameBitsForAnyNumberOfThreads) {
  const int before = thread_count();
  const auto stepped = [](int threads) {
    set_thread_count(threads);
    const Variable x = parameter(random_tensor({123, 457}, 1));
    AdamW adam({{"x", x}}, {.weight_decay = 0.1});
    for (const std::uint64_t seed : {1u, 2u}) {
      give_gradient(x, seed);
      clip_grad_norm(adam.parameters(), 1);
      adam.step();
    }
    return Tensor::copy_of(x.value());
  };
  const Tensor one = stepped(1);
  for (const int threads : {2, 3, 8}) EXPECT_TRUE(same_bits(stepped(threads), one));
  set_thread_count(before);
}

TEST(Optimizers, RefuseWhatMakesNoSense) {
  const Variable x = parameter(Tensor({2}));
  expect_error<OptionError>([&] { Sgd({{"x", x}, {"x", parameter(Tensor({2}))}}); }, {"name x", "twice"});
  expect_error<OptionError>([&] { Sgd({{"x", x}, {"y", x}}); }, {"parameter y", "another name"});
  expect_error<OptionError>([&] { Sgd({{"x", x + x}}); }, {"no parameter"});
  expect_error<OptionError>([&] { Sgd({{"x", x}}, {.rate = -1}); }, {"rate", "-1"});
  expect_error<OptionError>([&] { Sgd({{"x", x}}).set_rate(-2); }, {"rate", "-2"});
  expect_error<OptionError>([&] { Sgd({{"x", x}}, {.momentum = -1}); }, {"momentum", "-1"});
  expect_error<OptionError>([&] { Sgd({{"x", x}}, {.nesterov = true}); }, {"nesterov"});
  expect_error<OptionError>([&] { Adam({{"x", x}}, {.beta1 = 1}); }, {"beta1", "1"});
  expect_error<OptionError>([&] { AdamW({{"x", x}}, {.weight_decay = -1}); }, {"weight_decay", "-1"});
}

TEST(ClipGradNorm, ShrinksAllGradientsByOneFactor) {
  const Variable x = parameter(Tensor({2}, Dtype::float64)), y = parameter(Tensor({1})),
                 unused = parameter(Tensor({4}));
  const std::vector<NamedParameter> all = {{"x", x}, {"y", y}, {"unused", unused}};
  const auto give = [&] {
    x.zero_grad();
    y.zero_grad();
    backward(x, Tensor::of<double>({3, 0}, {2}));
    backward(y, Tensor::of<float>({4}, {1}));
  };
  give();
  EXPECT_EQ(clip_grad_norm(all, 10), 5);
  EXPECT_EQ(x.grad().as<double>()[0], 3);
  EXPECT_EQ(clip_grad_norm(all, 2.5), 5);
  EXPECT_EQ(x.grad().as<double>()[0], 1.5);
  EXPECT_EQ(y.grad().as<float>()[0], 2);
}

TEST(ClipGradNorm, LeavesWhatIsNotFinite) {
  const Variable x = parameter(Tensor({2}, Dtype::float64));
  backward(x, Tensor::of<double>({HUGE_VAL, 1}, {2}));
  EXPECT_EQ(clip_grad_norm({{"x", x}}, 1), HUGE_VAL);
  EXPECT_EQ(x.grad().as<double>()[1], 1);
  expect_error<OptionError>([&] { clip_grad_norm({{"x", x}}, 0); }, {"max_norm", "0"});
}

TEST(RateSchedule, WarmsUpAndDecays) {
  const RateSchedule constant{.rate = 0.5};
  EXPECT_EQ(constant.at(0), 0.5);
  EXPECT_EQ(constant.at(1000), 0.5);

  const RateSchedule warm{.rate = 0.8, .warmup = 4};
  EXPECT_DOUBLE_EQ(warm.at(0), 0.2);
  EXPECT_DOUBLE_EQ(warm.at(3), 0.8);
  EXPECT_DOUBLE_EQ(warm.at(9), 0.8);

  const RateSchedule linear{.rate = 1, .warmup = 2, .decay = Decay::linear, .steps = 12, .least = 0.1};
  EXPECT_DOUBLE_EQ(linear.at(2), 1);
  EXPECT_DOUBLE_EQ(linear.at(7), 0.55);
  EXPECT_DOUBLE_EQ(linear.at(12), 0.1);
  EXPECT_DOUBLE_EQ(linear.at(99), 0.1);

  const RateSchedule cosine{.rate = 1, .decay = Decay::cosine, .steps = 10};
  EXPECT_DOUBLE_EQ(cosine.at(0), 1);
  EXPECT_NEAR(cosine.at(5), 0.5, 1e-15);
  EXPECT_NEAR(cosine.at(10), 0, 1e-15);

  const RateSchedule root{.rate = 1, .warmup = 100, .decay = Decay::inverse_sqrt};
  EXPECT_DOUBLE_EQ(root.at(99), 1);
  EXPECT_DOUBLE_EQ(root.at(399), 0.5);
}

TEST(RateSchedule, RefusesNumbersThatMakeNone) {
  expect_error<OptionError>([] { RateSchedule{.decay = Decay::cosine}.at(0); }, {"RateSchedule", "steps 0"});
  expect_error<OptionError>([] { RateSchedule{.rate = -1}.at(0); }, {"rate -1"});
  expect_error<OptionError>([] { RateSchedule{}.at(-1); }, {"step -1"});
}

TEST(HalveOnPlateau, HalvesWhenNothingGetsBetter) {
  HalveOnPlateau plateau(1, {.patience = 1, .least = 0.2});
  EXPECT_EQ(plateau.after(5), 1);
  EXPECT_EQ(plateau.after(6), 1);    // one is forgiven
  EXPECT_EQ(plateau.after(4), 1);    // better
  EXPECT_EQ(plateau.after(4), 1);    // no better
  EXPECT_EQ(plateau.after(4), 0.5);  // and again
  HalveOnPlateau copy(9, {.patience = 1, .least = 0.2});
  copy.set_memory(plateau.memory());
  for (HalveOnPlateau* each : {&plateau, &copy}) {
    EXPECT_EQ(each->after(std::nan("")), 0.5);
    EXPECT_EQ(each->after(4), 0.25);
    EXPECT_EQ(each->after(4), 0.25);
    EXPECT_EQ(each->after(4), 0.2);
  }
  expect_error<OptionError>([] { HalveOnPlateau(1, {.factor = 2}); }, {"HalveOnPlateau", "factor 2"});
}

}  // namespace
}  // namespace qkv::test
