// autograd/tape_test.cpp: how graphs are recorded, walked and freed.
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/autograd.h>
#include <qkv/ops.h>

#include "autograd/node.h"
#include "support/close.h"
#include "support/errors.h"

namespace qkv::test {
namespace {

using tape::Node;

Variable number(double value) { return parameter(Tensor::of<double>({value}, {1})); }
double gradient(const Variable& x) { return x.grad().as<double>()[0]; }

// An op that runs `during` in its backward pass and hands the gradient on.
template <class F>
Variable identity(const Variable& x, F during) {
  return record("identity", x.detach(), {x}, [during](Backward& back) {
    during();
    back.add(0, back.take_upstream());
  });
}

TEST(Tape, AConstantNeedsNoGradient) {
  const Variable x(Tensor::of<float>({1, 2}, {2}));
  EXPECT_FALSE(x.needs_grad());
  EXPECT_FALSE(x.grad());
  EXPECT_FALSE((x * x).needs_grad());
}

TEST(Tape, AnAbsentVariableHasNothing) {
  const Variable x;
  EXPECT_FALSE(x);
  EXPECT_FALSE(x.value());
  EXPECT_FALSE(x.needs_grad());
  EXPECT_EQ(x.rank(), 0);
}

TEST(Tape, CopiesShareTheGradient) {
  const Variable x = number(3);
  const Variable copy = x;
  backward(x * x);
  EXPECT_EQ(gradient(copy), 6);
}

TEST(Tape, ADiamondSumsBothSides) {
  const Variable x = number(3);
  const Variable a = x * x, b = x + x;
  backward(a * b + a);  // 2 x^3 + x^2
  EXPECT_EQ(gradient(x), 6 * 9 + 2 * 3);
}

TEST(Tape, ManyDiamondsAreWalkedOnceEach) {
  // 2^60 paths: who walked them all would not come back.
  const Variable x = number(1);
  Variable y = x;
  for (int i = 0; i < 60; ++i) y = y + y;
  backward(y);
  EXPECT_EQ(gradient(x), 0x1p60);
}

TEST(Tape, GradientsAccumulateOverBackwardCalls) {
  const Variable x = number(3);
  backward(x * x);
  backward(x * x);
  EXPECT_EQ(gradient(x), 12);
  x.zero_grad();
  EXPECT_FALSE(x.grad());
  backward(x * x);
  EXPECT_EQ(gradient(x), 6);
}

TEST(Tape, AParameterIsItsOwnGraph) {
  const Variable x = number(3);
  backward(x);
  EXPECT_EQ(gradient(x), 1);
}

TEST(Tape, UnderNoGradNothingIsRecorded) {
  const Variable x = number(3);
  std::optional<NoGrad> outer(std::in_place);
  {
    const NoGrad inner;
    EXPECT_FALSE((x * x).needs_grad());
  }
  EXPECT_FALSE((x * x).needs_grad());
  outer.reset();
  EXPECT_TRUE((x * x).needs_grad());
}

TEST(Tape, WhatBackwardComputesIsNotRecorded) {
  const Variable x = number(3);
  bool recorded = true;
  backward(identity(x, [&] { recorded = (x * x).needs_grad(); }));
  EXPECT_FALSE(recorded);
}

TEST(Tape, DetachedValuesPassNoGradient) {
  const Variable x = number(3);
  backward(x * (x * x).detach());
  EXPECT_EQ(gradient(x), 9);
}

TEST(Tape, OpsRunInTheReverseOrderOfRecording) {
  const Variable x = number(1);
  std::string order;
  const Variable a = identity(x, [&] { order += 'a'; });
  const Variable b = identity(x, [&] { order += 'b'; });
  const Variable c = identity(a, [&] { order += 'c'; });
  const Variable d = identity(b, [&] { order += 'd'; });
  backward(d + c);
  EXPECT_EQ(order, "dcba");
}

TEST(Tape, OpsThatTheOutputDoesNotDependOnDoNotRun) {
  const Variable x = number(1);
  bool ran = false;
  const Variable aside = identity(x, [&] { ran = true; });
  backward(x * x);
  EXPECT_FALSE(ran);
}

TEST(Tape, AnOpMayHaveSeveralOutputs) {
  const Variable x = number(5);
  // 2 x and 3 x.
  const auto both = [&] {
    return record(
        "both", std::vector<Variable>{Variable(Tensor::of<double>({10}, {1})), Variable(Tensor::of<double>({15}, {1}))},
        {x}, [](Backward& back) {
          double dx = 0;
          if (const View d = back.upstream(0)) dx += 2 * d.as<double>()[0];
          if (const View d = back.upstream(1)) dx += 3 * d.as<double>()[0];
          back.add(0, Tensor::of<double>({dx}, {1}));
        });
  };
  backward(both()[0]);
  EXPECT_EQ(gradient(x), 2);
  backward(both()[1]);
  EXPECT_EQ(gradient(x), 2 + 3);
  const std::vector<Variable> y = both();
  backward(y[0] + y[1]);
  EXPECT_EQ(gradient(x), 2 + 3 + 5);
}

TEST(Tape, AGradientCanBeComputedInPlace) {
  const Variable x = number(1);
  const auto twice = [&] {
    return record("twice", x.detach(), {x}, [](Backward& back) {
      const double dy = back.upstream().as<double>()[0];
      const Backward::Target dx = back.target(0);
      double& sum = dx.gradient.as<double>()[0];
      sum = (dx.accumulate ? sum : 0) + 2 * dy;
    });
  };
  backward(twice());
  backward(twice());
  EXPECT_EQ(gradient(x), 4);
  x.zero_grad();
  backward(twice());
  EXPECT_EQ(gradient(x), 2);
}

TEST(Tape, AGraphServesOneBackward) {
  const Variable x = number(3);
  const Variable y = x * x;
  backward(y);
  expect_error<OptionError>([&] { backward(y); }, {"used up", "`mul`", "retain"});
}

TEST(Tape, ARetainedGraphServesMore) {
  const Variable x = number(3);
  const Variable y = x * x;
  backward(y, {.retain = true});
  backward(y, {.retain = true});
  backward(y);
  EXPECT_EQ(gradient(x), 18);
  EXPECT_THROW(backward(y), OptionError);
}

TEST(Tape, AnOpKnowsWhetherItRunsForTheLastTime) {
  const Variable x = number(3);
  std::vector<bool> last;
  const Variable y = record("asks", x.detach(), {x}, [&last](Backward& back) { last.push_back(back.is_last()); });
  backward(y, {.retain = true});
  backward(y);
  EXPECT_EQ(last, (std::vector<bool>{false, true}));
}

TEST(Tape, NodesAreFreedWithTheirVariables) {
  const std::int64_t before = Node::alive();
  {
    const Variable x = number(3);
    const Variable y = x * x + x;
    EXPECT_EQ(Node::alive(), before + 3);
  }
  EXPECT_EQ(Node::alive(), before);
}

TEST(Tape, BackwardReleasesTheGraph) {
  const std::int64_t before = Node::alive();
  const Variable x = number(3);
  const Variable y = (x * x) * (x * x) + x;
  EXPECT_EQ(Node::alive(), before + 5);
  backward(y);
  EXPECT_EQ(Node::alive(), before + 2);  // x and y, which are held
}

TEST(Tape, WhatAnOpKeepsIsReleasedWhenItHasRun) {
  const Variable x = number(3);
  const auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = kept;
  bool gone = false;
  const Variable first = identity(x, [&] { gone = watch.expired(); });
  const Variable second =
      record("keeps", first.detach(), {first}, [kept](Backward& back) { back.add(0, back.take_upstream()); });
  const_cast<std::shared_ptr<int>&>(kept).reset();
  backward(second);
  EXPECT_TRUE(gone);
}

TEST(Tape, ADeepChainIsWalkedAndFreed) {
  constexpr int depth = 1'000'000;
  const std::int64_t before = Node::alive();
  const Variable x = number(1);
  Variable y = x;
  for (int i = 0; i < depth; ++i) y = identity(y, [] {});
  backward(y);
  EXPECT_EQ(gradient(x), 1);
  y = {};
  EXPECT_EQ(Node::alive(), before + 1);
}

TEST(Tape, ADeepChainIsFreedWithoutBackward) {
  const std::int64_t before = Node::alive();
  {
    Variable y = number(1);
    for (int i = 0; i < 1'000'000; ++i) y = identity(y, [] {});
  }
  EXPECT_EQ(Node::alive(), before);
}

TEST(Tape, ADeepChainHeldByItsFunctionsIsFreed) {
  // Each function holds its input, beside the edge.
  Variable y = number(1);
  for (int i = 0; i < 300'000; ++i) y = identity(y, [y] {});
  y = {};
}

std::int64_t resident_kilobytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * 4;
}

TEST(Tape, ValuesThatNoOpKeepsAreFreedDuringTheForwardPass) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the address sanitizer keeps what is freed";
#endif
  const Variable x = parameter(Tensor({500, 500}));  // 1 MB
  const std::int64_t before = resident_kilobytes();
  Variable y = x;
  for (int i = 0; i < 100; ++i) y = y + x;  // a sum keeps nothing
  EXPECT_LT(resident_kilobytes(), before + 20'000);
}

TEST(Tape, ALoopOfTrainingStepsDoesNotGrow) {
  const Variable W = parameter(Tensor({100, 100})), x(Tensor({100, 100}));
  const std::int64_t nodes = Node::alive();
  std::int64_t after_some = 0;
  for (int step = 0; step < 1000; ++step) {
    const Variable h = linear(x, W);
    backward(sum(h * h));
    W.zero_grad();
    if (step % 3 == 0) linear(h, W);  // a graph that backward never sees
    if (step == 100) after_some = resident_kilobytes();
  }
  EXPECT_EQ(Node::alive(), nodes);
  EXPECT_LT(resident_kilobytes(), after_some + 2000);
}

TEST(Tape, AnOpThatThrowsLeavesNothingBehind) {
  const std::int64_t before = Node::alive();
  const Variable x = number(3);
  {
    bool broken = true;
    const Variable y = identity(x * x, [&broken] {
      if (broken) throw std::runtime_error("broken");
    });
    const Variable z = y + x;
    EXPECT_THROW(backward(z, {.retain = true}), std::runtime_error);
    x.zero_grad();
    broken = false;
    EXPECT_TRUE((x * x).needs_grad());  // what backward switched off is on again
    backward(z);                        // the graph is whole, and holds nothing of the first attempt
    EXPECT_EQ(gradient(x), 7);

    broken = true;
    x.zero_grad();
    const Variable used = identity(x * x, [] { throw std::runtime_error("broken"); }) + x;
    EXPECT_THROW(backward(used), std::runtime_error);
    EXPECT_THROW(backward(used), OptionError);  // used up
  }
  EXPECT_EQ(Node::alive(), before + 1);
}

TEST(Tape, RowsAreAddedAndRemembered) {
  const Variable table = parameter(Tensor({5, 2}, Dtype::float64));
  const auto lookup = [&](std::initializer_list<std::int64_t> rows) {
    const Variable y(Tensor(Shape{static_cast<std::int64_t>(rows.size()), 2}, Dtype::float64));
    return record("lookup", y, {table}, [rows = std::vector(rows)](Backward& back) {
      back.add_rows(0, View(rows, {static_cast<std::int64_t>(rows.size())}), back.upstream());
    });
  };
  const auto rows = [&] {
    const View view = table.grad_rows();
    return std::vector<std::int64_t>(view.as<std::int64_t>(), view.as<std::int64_t>() + view.elements());
  };
  backward(lookup({3, 1, 3}), Tensor::of<double>({1, 2, 3, 4, 5, 6}, {3, 2}));
  EXPECT_EQ(rows(), (std::vector<std::int64_t>{1, 3}));
  EXPECT_TRUE(same_bits(table.grad(), Tensor::of<double>({0, 0, 3, 4, 0, 0, 6, 8, 0, 0}, {5, 2})));
  backward(lookup({0}), Tensor::of<double>({1, 1}, {1, 2}));
  EXPECT_EQ(rows(), (std::vector<std::int64_t>{0, 1, 3}));
  table.zero_grad();
  backward(lookup({4}), Tensor::of<double>({7, 8}, {1, 2}));
  EXPECT_EQ(rows(), (std::vector<std::int64_t>{4}));
  EXPECT_TRUE(same_bits(table.grad(), Tensor::of<double>({0, 0, 0, 0, 0, 0, 0, 0, 7, 8}, {5, 2})));
  backward(sum(table));
  EXPECT_FALSE(table.grad_rows());  // all rows
  EXPECT_TRUE(same_bits(table.grad(), Tensor::of<double>({1, 1, 1, 1, 1, 1, 1, 1, 8, 9}, {5, 2})));
  table.zero_grad();
  backward(lookup({2}), Tensor::of<double>({7, 8}, {1, 2}));
  EXPECT_TRUE(same_bits(table.grad(), Tensor::of<double>({0, 0, 0, 0, 7, 8, 0, 0, 0, 0}, {5, 2})));
}

TEST(TapeErrors, NameWhatIsWrong) {
  const Variable x = parameter(Tensor({2, 3})), constant(Tensor({2, 3}));
  expect_error<DtypeError>([] { Variable(Tensor({2}, Dtype::float16)); },
                           {"Variable", "float32 or float64", "float16"});
  expect_error<DtypeError>([] { parameter(Tensor()); }, {"absent"});
  expect_error<ShapeError>([&] { backward(x + x); }, {"backward", "one number", "[2, 3]"});
  expect_error<OptionError>([&] { backward(sum(constant)); }, {"backward", "no parameter"});
  expect_error<ShapeError>([&] { backward(x, Tensor({3, 2})); }, {"backward", "[2, 3]", "[3, 2]"});
  expect_error<DtypeError>([&] { backward(x, Tensor({2, 3}, Dtype::float64)); }, {"float32", "float64"});
  expect_error<ShapeError>([&] { backward(x, View()); }, {"absent"});
  expect_error<OptionError>([&] { (x + x).mutable_value(); }, {"mutable_value", "no parameter", "add"});
  expect_error<OptionError>([&] { constant.mutable_grad(); }, {"mutable_grad", "constant"});
  expect_error<OptionError>([&] { Variable().zero_grad(); }, {"zero_grad", "absent"});
}

TEST(TapeErrors, NameAnOpWhoseGradientIsWrong) {
  const Variable x = parameter(Tensor({2, 3})), constant(Tensor({2, 3}));
  const auto run = [&](auto function) {
    backward(record("mine", x.detach(), {constant, x}, function), Tensor({2, 3}));
  };
  expect_error<ShapeError>([&] { run([](Backward& back) {
                                   back.add(1, Tensor({3, 2}));
                                 }); },
                           {"`mine`", "input 1", "[3, 2]", "[2, 3]"});
  expect_error<ShapeError>([&] { run([](Backward& back) {
                                   back.add(1, Tensor({2, 3}, Dtype::float64));
                                 }); },
                           {"`mine`", "float64", "float32"});
  expect_error<ShapeError>([&] { run([](Backward& back) { back.target(0); }); }, {"`mine`", "input 0", "needs()"});
  const Tensor rows = Tensor::of<std::int64_t>({2}, {1}), far = Tensor::of<std::int64_t>({1, 2}, {2});
  expect_error<ShapeError>([&] { run([&](Backward& back) {
                                   back.add_rows(1, rows, Tensor({1, 4}));
                                 }); },
                           {"`mine`", "rows", "[1, 4]", "[2, 3]"});
  expect_error<ShapeError>([&] { run([&](Backward& back) {
                                   back.add_rows(1, far, Tensor({2, 3}));
                                 }); },
                           {"`mine`", "row 2", "[2, 3]"});
}

}  // namespace
}  // namespace qkv::test
