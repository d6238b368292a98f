// ops/every_op_test.cpp: what holds for every op of the table.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/error.h>
#include <qkv/threads.h>

#include "ops/table.h"
#include "reference/elements.h"
#include "support/close.h"
#include "support/isas.h"
#include "support/random.h"

namespace qkv::test {
namespace {

class EveryOp : public testing::TestWithParam<OpRow> {};

std::string test_name(const testing::TestParamInfo<OpRow>& info) {
  std::string name;
  for (const char c : info.param.op + "_" + info.param.variant) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Table, EveryOp, testing::ValuesIn(op_table()), test_name);

std::vector<View> values_of(const Inputs& inputs) {
  std::vector<View> values;
  for (const Variable& input : inputs) values.push_back(input.value());
  return values;
}

// The value, and the gradients by all inputs for one random upstream gradient.
std::vector<Tensor> results(const OpRow& row, const Inputs& inputs, const Inputs& arguments) {
  const Variable y = row.call(arguments);
  std::vector<Tensor> all;
  all.push_back(Tensor::copy_of(y.value()));
  backward(y, Tensor::copy_of(random_tensor(y.shape(), 99), y.dtype()));
  for (const Variable& input : inputs) {
    all.push_back(input.grad() ? Tensor::copy_of(input.grad()) : Tensor(input.shape(), input.dtype()));
    input.zero_grad();
  }
  return all;
}
std::vector<Tensor> results(const OpRow& row, const Inputs& inputs) { return results(row, inputs, inputs); }

TEST_P(EveryOp, HasTheGradientOfItsDifferences) {
  const OpRow& row = GetParam();
  on_every_isa([&] {
    const Inputs inputs = make_inputs(row, row.shapes, Dtype::float64);
    const GradcheckResult result = gradcheck(row.call, values_of(inputs));
    EXPECT_TRUE(result) << result.message;
  });
}

TEST_P(EveryOp, HasTheGradientOfItsDifferencesAlongDirectionsAtLargerSizes) {
  const OpRow& row = GetParam();
  if (row.large.empty()) return;
  const Inputs inputs = make_inputs(row, row.large, Dtype::float64);
  const GradcheckResult result = gradcheck(row.call, values_of(inputs), {.directions = 2});
  EXPECT_TRUE(result) << result.message;
}

TEST_P(EveryOp, IsInFloat32WhatItIsInFloat64) {
  const OpRow& row = GetParam();
  on_every_isa([&] {
    for (const Shapes& shapes : {row.shapes, row.large}) {
      if (shapes.empty()) continue;
      const std::vector<Tensor> exact = results(row, make_inputs(row, shapes, Dtype::float64));
      const std::vector<Tensor> got = results(row, make_inputs(row, shapes, Dtype::float32));
      for (std::size_t r = 0; r < exact.size(); ++r) {
        // Sums of many roundings grow with the square root of their number.
        const double allowed = row.roundings * 0x1p-24 * std::max(1.0, largest_magnitude(exact[r].view()));
        for (std::size_t i = 0; i < static_cast<std::size_t>(exact[r].elements()); ++i) {
          ASSERT_NEAR(static_cast<double>(got[r].values<float>()[i]), exact[r].values<double>()[i], allowed)
              << (r == 0 ? "value" : "gradient of input " + std::to_string(r - 1)) << ", element " << i;
        }
      }
    }
  });
}

// x seen in memory with gaps behind every element and rows running backwards.
Variable strided(const Variable& x) {
  if (x.rank() == 0) return x;
  std::vector<std::int64_t> extents(x.shape().begin(), x.shape().end());
  extents.back() *= 2;
  Tensor memory(Shape(extents), x.dtype());
  Strides strides = memory.view().strides();
  strides[static_cast<std::size_t>(x.rank() - 1)] = 2;
  std::int64_t start = 0;
  if (x.rank() > 1 && x.extent(0) > 0) {
    start = (x.extent(0) - 1) * strides[0];
    strides[0] = -strides[0];
  }
  char* first = static_cast<char*>(memory.view().data()) + start * static_cast<std::int64_t>(size_of(x.dtype()));
  const MutableView spread(first, x.dtype(), x.shape(), strides);
  const std::vector<double> numbers = reference::elements<double>(x.value());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::int64_t index = static_cast<std::int64_t>(i), distance = 0;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      distance += index % x.extent(axis) * spread.stride(axis);
      index /= x.extent(axis);
    }
    set_element(spread, distance, numbers[i]);
  }
  const Variable whole(std::move(memory));
  return record("strided", whole.seen_as(spread), {x}, [](Backward& back) { back.add(0, back.take_upstream()); });
}

TEST_P(EveryOp, TakesAnyStrides) {
  const OpRow& row = GetParam();
  for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
    const Inputs inputs = make_inputs(row, row.shapes, dtype);
    Inputs arguments;
    for (const Variable& input : inputs) arguments.push_back(strided(input));
    const std::vector<Tensor> dense = results(row, inputs), spread = results(row, inputs, arguments);
    for (std::size_t r = 0; r < dense.size(); ++r) EXPECT_TRUE(same_bits(spread[r], dense[r])) << "result " << r;
  }
}

TEST_P(EveryOp, TakesAnUpstreamGradientOfAnyStrides) {
  const OpRow& row = GetParam();
  const Inputs inputs = make_inputs(row, row.shapes, Dtype::float64);
  const std::vector<Tensor> dense = results(row, inputs);
  const Variable y = row.call(inputs);
  const Variable upstream(Tensor::copy_of(random_tensor(y.shape(), 99), y.dtype()));
  backward(y, strided(upstream).value());
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    if (!inputs[r].grad()) continue;
    EXPECT_TRUE(same_bits(inputs[r].grad(), dense[r + 1])) << "input " << r;
  }
}

TEST_P(EveryOp, WorksWithoutElements) {
  const OpRow& row = GetParam();
  for (const Shapes& shapes : row.empty) {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      for (const Tensor& result : results(row, make_inputs(row, shapes, dtype))) {
        for (const double x : reference::elements<double>(result)) EXPECT_TRUE(std::isfinite(x));
      }
    }
  }
}

TEST_P(EveryOp, GivesTheSameBitsForAnyNumberOfThreads) {
  const OpRow& row = GetParam();
  const int before = thread_count();
  for (const Shapes& shapes : {row.shapes, row.large}) {
    if (shapes.empty()) continue;
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      const Inputs inputs = make_inputs(row, shapes, dtype);
      set_thread_count(1);
      const std::vector<Tensor> one = results(row, inputs);
      for (const int threads : {2, 3, 8}) {
        set_thread_count(threads);
        const std::vector<Tensor> many = results(row, inputs);
        for (std::size_t r = 0; r < one.size(); ++r) EXPECT_TRUE(same_bits(many[r], one[r])) << "result " << r;
      }
    }
  }
  set_thread_count(before);
}

TEST_P(EveryOp, GivesAGradientToOneInputWhereOthersNeedNone) {
  const OpRow& row = GetParam();
  const Inputs inputs = make_inputs(row, row.shapes, Dtype::float64);
  const std::vector<Tensor> all = results(row, inputs);
  for (std::size_t wanted = 0; wanted < inputs.size(); ++wanted) {
    Inputs arguments;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      arguments.push_back(i == wanted ? inputs[i] : inputs[i].detach());
    }
    const std::vector<Tensor> one = results(row, inputs, arguments);
    EXPECT_TRUE(same_bits(one[wanted + 1], all[wanted + 1])) << "input " << wanted;
  }
}

TEST_P(EveryOp, GivesTheSameGradientsFromARetainedGraph) {
  const OpRow& row = GetParam();
  const Inputs inputs = make_inputs(row, row.shapes, Dtype::float64);
  const std::vector<Tensor> once = results(row, inputs);
  const Variable y = row.call(inputs);
  const Tensor upstream = Tensor::copy_of(random_tensor(y.shape(), 99), y.dtype());
  for (const bool retain : {true, false}) {
    for (const Variable& input : inputs) input.zero_grad();
    backward(y, upstream, {.retain = retain});
    for (std::size_t r = 0; r < inputs.size(); ++r)
      EXPECT_TRUE(same_bits(inputs[r].grad(), once[r + 1])) << "input " << r;
  }
}

TEST_P(EveryOp, RecordsNothingUnderNoGrad) {
  const OpRow& row = GetParam();
  const NoGrad no_grad;
  EXPECT_FALSE(row.call(make_inputs(row, row.shapes, Dtype::float32)).needs_grad());
}

TEST_P(EveryOp, RefusesVariablesOfTwoDtypes) {
  const OpRow& row = GetParam();
  if (row.shapes.size() < 2) return;
  Inputs inputs = make_inputs(row, row.shapes, Dtype::float32);
  inputs.back() = make_inputs(row, row.shapes, Dtype::float64).back();
  EXPECT_THROW(row.call(inputs), DtypeError);
}

}  // namespace
}  // namespace qkv::test
