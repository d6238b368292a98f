// ops/errors_test.cpp: what ops refuse, and how they say it.
#include <gtest/gtest.h>

#include <qkv/ops.h>

#include "support/errors.h"

namespace qkv::test {
namespace {

const Variable x(Tensor({2, 3})), wide(Tensor({2, 3}, Dtype::float64)), vector(Tensor({4})), number(Tensor(Shape{}));
const Variable absent;
const Tensor ids = Tensor::of<std::int64_t>({0, 1}, {2});

TEST(OpErrors, NameOpRuleAndShapes) {
  expect_error<ShapeError>([] { linear(x, Variable(Tensor({5, 4}))); }, {"linear", "`in`", "x [2, 3]", "W [5, 4]"});
  expect_error<ShapeError>([] { linear(number, x); }, {"linear", "x []", "W [2, 3]"});
  expect_error<ShapeError>([] { linear(x, x, vector); }, {"linear", "b must be [out]", "[2, 3]", "[4]"});
  expect_error<ShapeError>([] { matmul(x, x); }, {"matmul", "share K", "a [2, 3]", "b [2, 3]"});
  expect_error<ShapeError>(
      [] {
        matmul(Variable(Tensor({2, 3, 4})), Variable(Tensor({3, 4, 5})));
      },
      {"matmul", "broadcast", "a [2]", "b [3]"});
  expect_error<ShapeError>([] { x + vector; }, {"add", "broadcast", "a [2, 3]", "b [4]"});
  expect_error<ShapeError>([] { x + absent; }, {"add", "absent"});
  expect_error<ShapeError>([] { sum(x, {.axes = {2}}); }, {"sum", "no axis 2", "[2, 3]"});
  expect_error<ShapeError>([] { mean(x, {.axes = {1, -1}}); }, {"mean", "axis -1", "twice", "[2, 3]"});
  expect_error<ShapeError>([] { softmax(number); }, {"softmax", "axis", "x []"});
  expect_error<ShapeError>([] { masked_softmax(x, Tensor({5}, Dtype::int64)); }, {"masked_softmax", "[5]"});
  expect_error<ShapeError>([] { layer_norm(x, vector); }, {"layer_norm", "x [2, 3]", "gain [4]"});
  expect_error<ShapeError>([] { layer_norm(x, {}, vector); }, {"layer_norm", "shift [4]"});
  expect_error<ShapeError>([] { embedding(vector, ids); }, {"embedding", "[V, D]", "table [4]"});
  expect_error<ShapeError>([] { embedding(x, Tensor::of<std::int64_t>({2}, {1})); }, {"embedding", "row 2", "[2, 3]"});
  expect_error<ShapeError>([] { embedding(x, Tensor::of<std::int64_t>({-1}, {1})); }, {"embedding", "row -1"});
  expect_error<ShapeError>([] { embedding(x, Tensor::of<std::int64_t>({1}, {1}), 2); },
                           {"embedding", "row 2", "fixed"});
  expect_error<ShapeError>([] { reshape(x, {4}); }, {"reshape", "x [2, 3]", "[4]"});
  expect_error<ShapeError>([] { transpose(x, 0, 2); }, {"transpose", "no axis 2", "[2, 3]"});
  expect_error<ShapeError>([] { slice(x, 1, 2, 2); }, {"slice", "2 elements from 2", "axis 1", "[2, 3]"});
  expect_error<ShapeError>([] { split(x, 1, {1, 1}); }, {"split", "1 + 1", "axis 1", "[2, 3]"});
  expect_error<ShapeError>([] { split(x, 1, {2, 2}); }, {"split", "2 + 2"});
  expect_error<ShapeError>([] { concat({}, 0); }, {"concat", "at least one"});
  expect_error<ShapeError>([] { concat({x, Variable(Tensor({3, 2}))}, 0); }, {"concat", "[2, 3]", "[3, 2]"});
  expect_error<ShapeError>([] { cross_entropy(number, ids); }, {"cross_entropy", "logits []"});
  expect_error<ShapeError>([] { cross_entropy(vector, ids); }, {"cross_entropy", "the rows []", "targets [2]"});
  expect_error<ShapeError>(
      [] {
        cross_entropy(x, Tensor::of<std::int64_t>({0, 3}, {2}));
      },
      {"cross_entropy", "no class 3", "among 3", "row 1"});
  expect_error<ShapeError>([] { cross_entropy(x, ids, {.keep = Tensor({3}, Dtype::boolean)}); },
                           {"cross_entropy", "keep", "[2]", "[3]"});
  expect_error<ShapeError>([] { linear_cross_entropy(x, vector, {}, ids); },
                           {"linear_cross_entropy", "x [2, 3]", "W [4]"});
  expect_error<ShapeError>([] { linear_cross_entropy(x, x, vector, ids); }, {"linear_cross_entropy", "b [4]"});
}

TEST(OpErrors, NameDtypes) {
  expect_error<DtypeError>([] { x + wide; }, {"add", "float32", "float64"});
  expect_error<DtypeError>([] { embedding(x, Tensor({2})); }, {"embedding", "ids", "int32 or int64", "float32"});
  expect_error<DtypeError>([] { cross_entropy(x, Tensor({2})); }, {"cross_entropy", "targets", "float32"});
}

TEST(OpErrors, NameOptions) {
  expect_error<OptionError>([] { layer_norm(x, {}, {}, -1); }, {"layer_norm", "epsilon", "-1"});
  expect_error<OptionError>([] { dropout(x, {.probability = 1, .training = true}); }, {"dropout", "probability", "1"});
  expect_error<OptionError>([] { dropout(x, {.training = true}); }, {"dropout", "seed"});
  expect_error<OptionError>([] { cross_entropy(x, ids, {.smoothing = 2}); }, {"cross_entropy", "smoothing", "2"});
}

}  // namespace
}  // namespace qkv::test
