// ops/table.cpp: every op of qkv/ops.h, once for each thing that it can do.
#include "ops/table.h"

#include <cmath>
#include <span>

#include "support/random.h"

namespace qkv::test {
namespace {

double away_from_zero(double x) { return x < 0 ? x - 0.1 : x + 0.1; }

// What an op borrows must live until it returns; these tensors do, as temporaries of the call.
Tensor some_ids(std::int64_t rows, const Shape& shape) { return random_integers(shape, 3, 0, rows - 1); }

// All axes but the last.
Shape rows_of(const Shape& shape) {
  return Shape(std::span(shape.begin(), static_cast<std::size_t>(shape.rank() - 1)));
}

// A class for every row.
Tensor targets_of(const Shape& shape, std::int64_t classes) {
  return random_integers(rows_of(shape), 4, 0, classes - 1, Dtype::int32);
}

// Lengths from 0 on: one per index of the first axes, as many as are told.
Tensor lengths_below(const Shape& shape, int axes) {
  Tensor lengths(Shape(std::span(shape.begin(), static_cast<std::size_t>(axes))), Dtype::int64);
  std::int64_t next = 0;
  for (std::int64_t& length : lengths.values<std::int64_t>()) length = next++ % (shape.back() + 1);
  return lengths;
}

}  // namespace

const std::vector<OpRow>& op_table() {
  static const std::vector<OpRow> table = {
      {.op = "linear",
       .variant = "with bias",
       .call = [](const Inputs& x) { return linear(x[0], x[1], x[2]); },
       .shapes = {{2, 3, 5}, {4, 5}, {4}},
       .empty = {{{0, 5}, {4, 5}, {4}}, {{3, 0}, {4, 0}, {4}}, {{3, 5}, {0, 5}, {0}}},
       .large = {{70, 65}, {130, 65}, {130}}},
      {.op = "linear",
       .variant = "without bias, one row",
       .call = [](const Inputs& x) { return linear(x[0], x[1]); },
       .shapes = {{5}, {3, 5}},
       .empty = {{{0}, {3, 0}}},
       .large = {{300, 65}, {130, 65}},
       .roundings = 12},  // 300 products in one sum
      // Inputs of gru are small enough that its gates are not all open or shut.
      {.op = "gru",
       .variant = "all and last states",
       .call =
           [](const Inputs& x) {
             const GruStates states = gru(x[0], {{x[1], x[2], x[3], x[4]}}, {.h0 = x[5]});
             return mean(states.all, {.axes = {1}}) + states.last;
           },
       .shapes = {{2, 3, 4}, {9, 4}, {9, 3}, {9}, {9}, {1, 2, 3}},
       .empty = {{{0, 3, 4}, {9, 4}, {9, 3}, {9}, {9}, {1, 0, 3}},
                 {{2, 3, 0}, {9, 0}, {9, 3}, {9}, {9}, {1, 2, 3}},
                 {{2, 3, 4}, {0, 4}, {0, 0}, {0}, {0}, {1, 2, 0}}},
       .large = {{40, 5, 33}, {195, 33}, {195, 65}, {195}, {195}, {1, 40, 65}},
       .input = [](double x) { return 0.25 * x; },
       .roundings = 64},
      {.op = "gru",
       .variant = "two layers in both directions with lengths",
       .call =
           [](const Inputs& x) {
             const std::vector<std::int64_t> lengths = {2, 4, 1, 0, 3};
             std::vector<GruWeights> weights;
             for (std::size_t i = 2; i < x.size(); i += 3) weights.push_back({x[i], x[i + 1], {}, x[i + 2]});
             const View some = View(lengths, {5}).slice(0, 0, x[0].extent(0));
             return gru(x[0], weights, {.both_directions = true, .h0 = x[1], .lengths = some}).all;
           },
       .shapes =
           {{5, 4, 3}, {4, 5, 2}, {6, 3}, {6, 2}, {6}, {6, 3}, {6, 2}, {6}, {6, 4}, {6, 2}, {6}, {6, 4}, {6, 2}, {6}},
       .empty =
           {{{0, 4, 3}, {4, 0, 2}, {6, 3}, {6, 2}, {6}, {6, 3}, {6, 2}, {6}, {6, 4}, {6, 2}, {6}, {6, 4}, {6, 2}, {6}}},
       .input = [](double x) { return 0.25 * x; },
       .roundings = 64},
      {.op = "gru",
       .variant = "the last states of no steps",
       .call =
           [](const Inputs& x) {
             return gru(x[0], {{x[1], x[2]}}, {.h0 = x[3]}).last;
           },
       .shapes = {{2, 0, 4}, {9, 4}, {9, 3}, {1, 2, 3}}},
      {.op = "gru",
       .variant = "the last states with dropout between layers",
       .call =
           [](const Inputs& x) {
             return gru(x[0], {{x[1], x[2], x[3]}, {x[4], x[5], x[6]}}, {.dropout = 0.3, .training = true, .seed = 5})
                 .last;
           },
       .shapes = {{3, 4, 3}, {15, 3}, {15, 5}, {15}, {15, 5}, {15, 5}, {15}},
       .empty = {{{0, 4, 3}, {15, 3}, {15, 5}, {15}, {15, 5}, {15, 5}, {15}}},
       .large = {{40, 5, 33}, {195, 33}, {195, 65}, {195}, {195, 65}, {195, 65}, {195}},
       .input = [](double x) { return 0.25 * x; },
       .roundings = 64},
      {.op = "add",
       .variant = "",
       .call = [](const Inputs& x) { return x[0] + x[1]; },
       .shapes = {{3, 4}, {3, 4}},
       .empty = {{{0, 4}, {0, 4}}},
       .large = {{300, 301}, {300, 301}}},
      {.op = "add",
       .variant = "broadcast",
       .call = [](const Inputs& x) { return x[0] + x[1]; },
       .shapes = {{3, 1, 4}, {2, 1}},
       .empty = {{{3, 1, 0}, {2, 1}}, {{0, 1, 4}, {1}}},
       .large = {{300, 1, 301}, {2, 1}}},
      {.op = "sub",
       .variant = "broadcast",
       .call = [](const Inputs& x) { return x[0] - x[1]; },
       .shapes = {{4}, {2, 3, 4}},
       .empty = {{{4}, {0, 4}}, {{0}, {3, 0}}},
       .large = {{301}, {300, 301}}},
      {.op = "mul",
       .variant = "",
       .call = [](const Inputs& x) { return x[0] * x[1]; },
       .shapes = {{3, 4}, {3, 4}},
       .empty = {{{0, 4}, {0, 4}}},
       .large = {{300, 301}, {300, 301}}},
      {.op = "mul",
       .variant = "broadcast",
       .call = [](const Inputs& x) { return x[0] * x[1]; },
       .shapes = {{3, 1, 4}, {2, 1}},
       .empty = {{{3, 1, 0}, {2, 1}}},
       .large = {{300, 1, 301}, {2, 1}}},
      {.op = "mul",
       .variant = "of a variable with itself",
       .call = [](const Inputs& x) { return x[0] * x[0]; },
       .shapes = {{3, 4}},
       .empty = {{{0, 4}}},
       .large = {{300, 301}}},
      {.op = "div",
       .variant = "broadcast",
       .call = [](const Inputs& x) { return x[0] / x[1]; },
       .shapes = {{3, 4}, {3, 1}},
       .empty = {{{0, 4}, {0, 1}}, {{3, 0}, {3, 1}}},
       .large = {{300, 301}, {300, 1}},
       .input = [](double x) { return x < 0 ? x - 1 : x + 1; }},
      {.op = "sum",
       .variant = "of all",
       .call = [](const Inputs& x) { return sum(x[0]); },
       .shapes = {{3, 4, 2}},
       .empty = {{{0, 4}}},
       .large = {{500, 501}}},
      {.op = "sum",
       .variant = "over the first axis",
       .call = [](const Inputs& x) { return sum(x[0], {.axes = {0}}); },
       .shapes = {{3, 4, 2}},
       .empty = {{{0, 4}}, {{3, 0}}},
       .large = {{500, 501}}},
      {.op = "sum",
       .variant = "over the first and the last axis, which stay",
       .call =
           [](const Inputs& x) {
             return sum(x[0], {.axes = {0, -1}, .keep_axes = true});
           },
       .shapes = {{3, 4, 2}},
       .empty = {{{0, 4, 2}}, {{3, 0, 2}}, {{3, 4, 0}}},
       .large = {{50, 51, 52}}},
      {.op = "mean",
       .variant = "over the middle axis",
       .call = [](const Inputs& x) { return mean(x[0], {.axes = {1}}); },
       .shapes = {{3, 4, 2}},
       .empty = {{{0, 4, 2}}, {{3, 4, 0}}},
       .large = {{50, 51, 52}}},
      {.op = "matmul",
       .variant = "of matrices",
       .call = [](const Inputs& x) { return matmul(x[0], x[1]); },
       .shapes = {{3, 4}, {4, 5}},
       .empty = {{{0, 4}, {4, 5}}, {{3, 0}, {0, 5}}, {{3, 4}, {4, 0}}},
       .large = {{70, 300}, {300, 65}},
       .roundings = 16},
      {.op = "matmul",
       .variant = "of batches, broadcast",
       .call = [](const Inputs& x) { return matmul(x[0], x[1]); },
       .shapes = {{2, 1, 3, 4}, {3, 4, 2}},
       .empty = {{{0, 1, 3, 4}, {3, 4, 2}}, {{2, 1, 3, 0}, {3, 0, 2}}},
       .large = {{2, 1, 33, 40}, {3, 40, 20}}},
      {.op = "scale",
       .variant = "",
       .call = [](const Inputs& x) { return -scale(x[0], 0.75); },
       .shapes = {{3, 4}},
       .empty = {{{0, 4}}},
       .large = {{300, 301}}},
      {.op = "tanh",
       .variant = "",
       .call = [](const Inputs& x) { return tanh(x[0]); },
       .shapes = {{5, 7}},
       .empty = {{{0, 4}}},
       .large = {{300, 301}}},
      {.op = "sigmoid",
       .variant = "",
       .call = [](const Inputs& x) { return sigmoid(x[0]); },
       .shapes = {{5, 7}},
       .empty = {{{0, 4}}},
       .large = {{300, 301}},
       .input = [](double x) { return 3 * x; }},
      {.op = "relu",
       .variant = "",
       .call = [](const Inputs& x) { return relu(x[0]); },
       .shapes = {{5, 7}},
       .empty = {{{0, 4}}},
       .large = {{300, 301}},
       .input = away_from_zero},
      {.op = "gelu",
       .variant = "by erf",
       .call = [](const Inputs& x) { return gelu(x[0]); },
       .shapes = {{5, 7}},
       .empty = {{{0, 4}}},
       .large = {{300, 301}},
       .input = [](double x) { return 2 * x; }},
      {.op = "gelu",
       .variant = "by tanh",
       .call = [](const Inputs& x) { return gelu(x[0], GeluForm::tanh); },
       .shapes = {{5, 7}},
       .empty = {{{0, 4}}},
       .large = {{300, 301}},
       .input = [](double x) { return 2 * x; },
       .roundings = 16},
      {.op = "exp",
       .variant = "",
       .call = [](const Inputs& x) { return exp(x[0]); },
       .shapes = {{5, 7}},
       .empty = {{{0, 4}}},
       .large = {{300, 301}}},
      {.op = "log",
       .variant = "",
       .call = [](const Inputs& x) { return log(x[0]); },
       .shapes = {{5, 7}},
       .empty = {{{0, 4}}},
       .large = {{300, 301}},
       .input = [](double x) { return std::abs(x) + 0.1; }},
      {.op = "softmax",
       .variant = "",
       .call = [](const Inputs& x) { return softmax(x[0]); },
       .shapes = {{2, 3, 5}},
       .empty = {{{0, 4}}, {{4, 0}}},
       .large = {{300, 301}},
       .input = [](double x) { return 2 * x; }},
      {.op = "masked_softmax",
       .variant = "a length per sequence",
       .call = [](const Inputs& x) { return masked_softmax(x[0], lengths_below(x[0].shape(), 1)); },
       .shapes = {{3, 2, 5}},
       .empty = {{{0, 2, 5}}, {{3, 0, 5}}, {{3, 2, 0}}},
       .large = {{30, 10, 301}}},
      {.op = "masked_softmax",
       .variant = "a length per query, uniform if empty",
       .call = [](const Inputs& x) { return masked_softmax(x[0], lengths_below(x[0].shape(), 2), OnEmpty::uniform); },
       .shapes = {{3, 2, 5}},
       .empty = {{{0, 2, 5}}, {{3, 0, 5}}},
       .large = {{30, 10, 301}}},
      {.op = "layer_norm",
       .variant = "with gain and shift",
       .call = [](const Inputs& x) { return layer_norm(x[0], x[1], x[2]); },
       .shapes = {{2, 3, 7}, {7}, {7}},
       .empty = {{{0, 7}, {7}, {7}}, {{3, 0}, {0}, {0}}},
       .large = {{300, 301}, {301}, {301}},
       .roundings = 32},
      {.op = "layer_norm",
       .variant = "alone",
       .call = [](const Inputs& x) { return layer_norm(x[0]); },
       .shapes = {{5, 7}},
       .empty = {{{0, 7}}, {{3, 0}}},
       .large = {{300, 301}},
       .roundings = 32},
      {.op = "embedding",
       .variant = "",
       .call =
           [](const Inputs& x) {
             return embedding(x[0], some_ids(x[0].extent(0), {2, 3}));
           },
       .shapes = {{4, 3}},
       .empty = {{{4, 0}}},
       .large = {{500, 60}}},
      {.op = "embedding",
       .variant = "many rows more than once",
       .call =
           [](const Inputs& x) {
             return embedding(x[0], some_ids(x[0].extent(0), {40, 50}));
           },
       .shapes = {{4, 3}},
       .large = {{50, 60}}},
      {.op = "dropout",
       .variant = "",
       .call = [](const Inputs& x) { return dropout(x[0], {.probability = 0.3, .training = true, .seed = 7}); },
       .shapes = {{5, 7}},
       .empty = {{{0, 7}}},
       .large = {{300, 301}}},
      {.op = "reshape",
       .variant = "",
       .call =
           [](const Inputs& x) {
             return reshape(x[0], {x[0].extent(1), x[0].extent(0)});
           },
       .shapes = {{3, 4}},
       .empty = {{{0, 4}}},
       .large = {{300, 301}}},
      {.op = "transpose",
       .variant = "",
       .call = [](const Inputs& x) { return transpose(x[0], 0, -1); },
       .shapes = {{3, 4, 2}},
       .empty = {{{0, 4, 2}}},
       .large = {{300, 3, 101}}},
      {.op = "slice",
       .variant = "",
       .call = [](const Inputs& x) { return slice(x[0], 1, 1, x[0].extent(1) - 2); },
       .shapes = {{3, 4, 2}},
       .empty = {{{0, 4, 2}}, {{3, 2, 2}}},
       .large = {{30, 31, 101}}},
      {.op = "split",
       .variant = "of which one part is not used",
       .call =
           [](const Inputs& x) {
             const auto parts = split(x[0], -1, {2, 1, x[0].shape().back() - 3});
             return concat({parts[2], parts[0]}, -1);
           },
       .shapes = {{3, 5}},
       .empty = {{{0, 5}}, {{3, 3}}},
       .large = {{300, 301}}},
      {.op = "concat",
       .variant = "",
       .call =
           [](const Inputs& x) {
             return concat({x[0], x[1], x[0]}, 1);
           },
       .shapes = {{3, 2, 2}, {3, 1, 2}},
       .empty = {{{0, 2, 2}, {0, 1, 2}}, {{3, 0, 2}, {3, 1, 2}}},
       .large = {{30, 20, 101}, {30, 10, 101}}},
      {.op = "cross_entropy",
       .variant = "",
       .call = [](const Inputs& x) { return cross_entropy(x[0], targets_of(x[0].shape(), x[0].shape().back())); },
       .shapes = {{2, 3, 5}},
       .large = {{300, 301}}},
      {.op = "cross_entropy",
       .variant = "smoothed, with padding, summed",
       .call =
           [](const Inputs& x) {
             const Tensor keep = random_booleans(rows_of(x[0].shape()), 5, 0.7);
             return cross_entropy(x[0], targets_of(x[0].shape(), x[0].shape().back()),
                                  {.smoothing = 0.1, .ignore = 1, .keep = keep, .reduction = Reduction::sum});
           },
       .shapes = {{4, 3, 5}},
       .empty = {{{0, 5}}},
       .large = {{300, 301}}},
      {.op = "linear_cross_entropy",
       .variant = "",
       .call =
           [](const Inputs& x) {
             return linear_cross_entropy(x[0], x[1], x[2], targets_of(x[0].shape(), x[1].extent(0)));
           },
       .shapes = {{2, 3, 4}, {5, 4}, {5}},
       .empty = {{{3, 0}, {5, 0}, {5}}},
       .large = {{300, 40}, {101, 40}, {101}},
       .roundings = 64},
      {.op = "linear_cross_entropy",
       .variant = "without bias, smoothed, with padding, summed",
       .call =
           [](const Inputs& x) {
             return linear_cross_entropy(x[0], x[1], {}, targets_of(x[0].shape(), x[1].extent(0)),
                                         {.smoothing = 0.1, .ignore = 1, .reduction = Reduction::sum});
           },
       .shapes = {{6, 4}, {5, 4}},
       .empty = {{{0, 4}, {5, 4}}},
       .large = {{300, 40}, {101, 40}},
       .roundings = 64},  // logits of about 20
  };
  return table;
}

Inputs make_inputs(const OpRow& row, const Shapes& shapes, Dtype dtype, std::uint64_t seed) {
  Inputs inputs;
  for (const Shape& shape : shapes) {
    // float32 and float64 get the same numbers: those that float32 can hold.
    Tensor numbers = Tensor::copy_of(random_tensor(shape, seed + inputs.size(), Dtype::float32), Dtype::float64);
    if (row.input) {
      for (double& x : numbers.values<double>()) x = static_cast<double>(static_cast<float>(row.input(x)));
    }
    inputs.push_back(parameter(Tensor::copy_of(numbers, dtype)));
  }
  return inputs;
}

}  // namespace qkv::test
