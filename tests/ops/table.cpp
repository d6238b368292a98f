// ops/table.cpp: every op of qkv/ops.h, once for each thing that it can do.
#include "ops/table.h"

#include "support/random.h"

namespace qkv::test {

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
       .large = {{300, 65}, {130, 65}}},
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
