// ops/gru.cpp: gated recurrent units over whole sequences, and backward through time.
#include <qkv/ops.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <qkv/error.h>
#include <qkv/gemm.h>

#include "base/blocks.h"
#include "base/message.h"
#include "base/random.h"
#include "kernels/gru.h"
#include "ops/check.h"
#include "ops/packed_steps.h"
#include "ops/reduce.h"
#include "tensor/elements.h"

namespace qkv {
namespace {

struct Extents {
  std::int64_t B, T, I, H, directions, layers;
};

Extents check(const Variable& x, const std::vector<GruWeights>& weights, const GruOptions& options) {
  common_dtype("gru", {&x, &options.h0});
  const std::int64_t D = options.both_directions ? 2 : 1, sets = static_cast<std::int64_t>(weights.size());
  if (sets == 0 || sets % D != 0) {
    throw OptionError(message("gru: there must be one set of weights for each layer and direction; there are ", sets,
                              " of them and ", D, D == 1 ? " direction" : " directions"));
  }
  if (x.rank() != 3) refuse_shapes("gru", "x must be [B, T, I]", {{"x", x.shape()}});
  for (const GruWeights& set : weights) {
    common_dtype("gru", {&x, &set.W_ih, &set.W_hh, &set.b_ih, &set.b_hh});
    common_dtype("gru", {&set.W_ih});
    common_dtype("gru", {&set.W_hh});
  }
  const Shape& recurrent = weights[0].W_hh.shape();
  const Extents e = {x.extent(0), x.extent(1), x.extent(2), recurrent.rank() == 2 ? recurrent[1] : 0, D, sets / D};
  for (std::int64_t i = 0; i < sets; ++i) {
    const GruWeights& set = weights[static_cast<std::size_t>(i)];
    const Shape W_ih{3 * e.H, i < D ? e.I : D * e.H}, W_hh{3 * e.H, e.H}, bias{3 * e.H};
    if (set.W_hh.shape() != W_hh) refuse_shapes("gru", "W_hh must be [3 H, H]", {{"W_hh", set.W_hh.shape()}});
    if (set.W_ih.shape() != W_ih) {
      refuse_shapes("gru", "W_ih must be [3 H, I], and [3 H, D H] from the second layer on",
                    {{"x", x.shape()}, {"W_hh", W_hh}, {"W_ih", set.W_ih.shape()}, {"instead of", W_ih}});
    }
    for (const Variable* b : {&set.b_ih, &set.b_hh}) {
      if (*b && b->shape() != bias) refuse_shapes("gru", "biases must be [3 H]", {{"W_hh", W_hh}, {"b", b->shape()}});
    }
  }
  const Shape h0{sets, e.B, e.H};
  if (options.h0 && options.h0.shape() != h0) {
    refuse_shapes("gru", "h0 must be [layers D, B, H]", {{"h0", options.h0.shape()}, {"instead of", h0}});
  }
  if (!(options.dropout >= 0 && options.dropout < 1)) {
    throw OptionError(message("gru: dropout must be at least 0 and below 1, and is ", options.dropout));
  }
  if (options.training && options.dropout > 0 && !options.seed) {
    throw OptionError("gru: dropout in training needs a seed");
  }
  return e;
}

std::vector<std::int64_t> checked_lengths(const View& lengths, const Extents& e) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(e.B), e.T);
  if (!lengths) return all;
  require_integers(lengths, "lengths", "gru");
  if (lengths.shape() != Shape{e.B}) {
    refuse_shapes("gru", "lengths must be [B]", {{"lengths", lengths.shape()}, {"instead of", Shape{e.B}}});
  }
  for (std::int64_t b = 0; b < e.B; ++b) {
    const std::int64_t length = integer_at(lengths, b * lengths.stride(0));
    if (length < 0 || length > e.T) {
      throw ShapeError(message("gru: length ", length, " of sequence ", b, " is outside 0..T = ", e.T));
    }
    all[static_cast<std::size_t>(b)] = length;
  }
  return all;
}

// In which order a direction takes the steps, and where its sequences enter and leave.
struct Direction {
  const PackedSteps& packed;
  bool is_reverse;

  std::int64_t step(std::int64_t turn) const { return is_reverse ? packed.steps() - 1 - turn : turn; }
  std::int64_t entry(std::int64_t place) const { return is_reverse ? last_row(place) : place; }
  std::int64_t exit(std::int64_t place) const { return is_reverse ? place : last_row(place); }

  // The rows that go on from one turn to the next one, which are the first ones of both.
  std::int64_t continuing(std::int64_t turn) const {
    if (turn + 1 == packed.steps()) return 0;
    return std::min(packed.count(step(turn)), packed.count(step(turn + 1)));
  }

 private:
  std::int64_t last_row(std::int64_t place) const { return packed.first(packed.length(place) - 1) + place; }
};

// Rows of a matrix to those of another one; last axes are dense.
void copy_rows(const View& from, std::int64_t from_row, const MutableView& to, std::int64_t to_row,
               std::int64_t count = 1) {
  const std::size_t size = size_of(from.dtype()), bytes = static_cast<std::size_t>(from.extent(1)) * size;
  if (bytes == 0) return;
  const auto distance = [&](const View& matrix, std::int64_t row) {
    return row * matrix.stride(0) * static_cast<std::int64_t>(size);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(static_cast<char*>(to.data()) + distance(to, to_row + i),
                static_cast<const char*>(from.data()) + distance(from, from_row + i), bytes);
  }
}

// What one layer's direction keeps for its backward pass.
struct Kept {
  Tensor gates;   // [rows, 3 H]: r, z, n
  Tensor hidden;  // [rows, H]: W_hn h + b_hn
  Tensor before;  // [rows, H]: the state before the step
};

constexpr std::int64_t task_elements = 1 << 13;  // of a step's gates

std::int64_t rows_a_task(std::int64_t H) {
  return std::max<std::int64_t>(1, task_elements / std::max<std::int64_t>(1, H));
}

template <class T>
void forward_gates(Kept& kept, const View& state, const MutableView& after, std::int64_t row, std::int64_t rows,
                   std::int64_t next_row, std::int64_t continuing) {
  const std::int64_t H = state.extent(1) / 3;
  const auto& kernels = kernels::gru_kernels<T>(current_isa());
  T *gates = kept.gates.values<T>().data(), *hidden = kept.hidden.values<T>().data();
  T* before = kept.before.values<T>().data();
  for_blocks(rows, rows_a_task(H), [&](std::int64_t first, std::int64_t count) {
    const std::int64_t r = row + first, go_on = std::clamp<std::int64_t>(continuing - first, 0, count);
    kernels.forward({static_cast<int>(count), static_cast<int>(H), gates + r * 3 * H,
                     state.as<T>() + first * state.stride(0), before + r * H, hidden + r * H,
                     after.as<T>() + r * after.stride(0), after.stride(0), before + (next_row + first) * H,
                     static_cast<int>(go_on)});
  });
}

template <class T>
void backward_gates(const Kept& kept, const View& upstream, const MutableView& carry, const MutableView& slopes,
                    std::int64_t row, std::int64_t rows) {
  const std::int64_t H = carry.extent(1);
  const auto& kernels = kernels::gru_kernels<T>(current_isa());
  for_blocks(rows, rows_a_task(H), [&](std::int64_t first, std::int64_t count) {
    const std::int64_t r = row + first;
    kernels.backward({static_cast<int>(count), static_cast<int>(H), kept.gates.values<T>().data() + r * 3 * H,
                      kept.hidden.values<T>().data() + r * H, kept.before.values<T>().data() + r * H,
                      upstream ? upstream.as<T>() + r * upstream.stride(0) : nullptr, upstream.stride(0),
                      carry.as<T>() + first * H, slopes.as<T>() + r * 4 * H});
  });
}

// The states [B, H] of one layer and direction, of [layers D, B, H], dense or absent.
View states_of(const View& all, std::int64_t at) { return all ? as_matrix(all.slice(0, at, 1)) : View(); }

// One direction of one layer: states go to `after` [rows, H], the last ones to `last` [B, H]. h0 [B, H], dense or
// absent.
Kept forward_direction(const Direction& direction, const View& input, const GruWeights& weights, const View& h0,
                       const MutableView& after, const MutableView& last) {
  const PackedSteps& packed = direction.packed;
  const std::int64_t H = last.extent(1);
  const Dtype dtype = input.dtype();
  Kept kept = {Tensor::uninitialized(Shape{packed.rows(), 3 * H}, dtype),
               Tensor::uninitialized(Shape{packed.rows(), H}, dtype), Tensor(Shape{packed.rows(), H}, dtype)};
  const Variable b_ih = weights.b_ih ? dense(weights.b_ih) : Variable();
  const Variable b_hh = weights.b_hh ? dense(weights.b_hh) : Variable();
  gemm(input, weights.W_ih.value().swapped(0, 1), kept.gates, {.bias = b_ih.value()});

  for (std::int64_t place = 0; h0 && place < packed.sequences(); ++place) {
    if (packed.length(place) > 0) copy_rows(h0, packed.sequence(place), kept.before.view(), direction.entry(place));
  }
  const PackedMatrix W_hh(weights.W_hh.value().swapped(0, 1));
  Tensor state(Shape{packed.sequences(), 3 * H}, dtype);
  for (std::int64_t turn = 0; turn < packed.steps(); ++turn) {
    const std::int64_t step = direction.step(turn), row = packed.first(step), rows = packed.count(step);
    const MutableView part = state.view().slice(0, 0, rows);
    gemm(kept.before.view().slice(0, row, rows), W_hh, part, {.bias = b_hh.value()});
    const std::int64_t continuing = direction.continuing(turn);
    const std::int64_t next_row = continuing > 0 ? packed.first(direction.step(turn + 1)) : 0;
    (dtype == Dtype::float64 ? forward_gates<double> : forward_gates<float>)(kept, part, after, row, rows, next_row,
                                                                             continuing);
  }
  for (std::int64_t place = 0; place < packed.sequences(); ++place) {
    const std::int64_t sequence = packed.sequence(place);
    if (packed.length(place) > 0) {
      copy_rows(after, direction.exit(place), last, sequence);
    } else if (h0) {
      copy_rows(h0, sequence, last, sequence);
    }
  }
  return kept;
}

// Rows of W_hh in the order of the slopes, n first.
PackedMatrix packed_for_slopes(const Variable& W_hh) {
  const std::int64_t H = W_hh.extent(1);
  const Variable rows = dense(W_hh);
  Tensor turned = Tensor::uninitialized(W_hh.shape(), W_hh.dtype());
  copy_rows(rows.value(), 2 * H, turned.view(), 0, H);
  copy_rows(rows.value(), 0, turned.view(), H, 2 * H);
  return PackedMatrix(turned);
}

// Back through the steps: `carry` [sequences, H], by place, holds the gradient by the last states on entry and by h0 on
// return, unless that is not needed. Returns the slopes [rows, 4 H] of the gates: ds_n, r, z, di_n.
Tensor backward_direction(const Direction& direction, const Kept& kept, const Variable& W_hh, const View& upstream,
                          Tensor& carry, bool needs_h0) {
  const PackedSteps& packed = direction.packed;
  const std::int64_t H = carry.shape()[1];
  const Dtype dtype = carry.dtype();
  Tensor slopes = Tensor::uninitialized(Shape{packed.rows(), 4 * H}, dtype);
  const PackedMatrix products = packed_for_slopes(W_hh);
  for (std::int64_t turn = packed.steps() - 1; turn >= 0; --turn) {
    const std::int64_t step = direction.step(turn), row = packed.first(step), rows = packed.count(step);
    const MutableView part = carry.view().slice(0, 0, rows);
    (dtype == Dtype::float64 ? backward_gates<double> : backward_gates<float>)(kept, upstream, part, slopes.view(), row,
                                                                               rows);
    if (turn == 0 && !needs_h0) break;
    gemm(slopes.view().slice(0, row, rows).slice(1, 0, 3 * H), products, part, {.accumulate = true});
  }
  return slopes;
}

// The input of a layer in training: states of the layer before, some of which are 0.
struct Dropout {
  std::uint64_t seed;
  double probability;

  void drop(Tensor& states, const PackedSteps& packed, std::int64_t layer) const {
    const std::uint32_t threshold = drop_threshold(probability);
    const std::int64_t width = states.shape()[1];
    const auto drop_all = [&]<class T>(T) {
      for_blocks(packed.steps(), 1, [&](std::int64_t step, std::int64_t) {
        T* row = states.values<T>().data() + packed.first(step) * width;
        for (std::int64_t place = 0; place < packed.count(step); ++place, row += width) {
          kernels::drop_row(row, width, random_key(seed, layer, packed.sequence(place), step), threshold,
                            static_cast<T>(1 / (1 - probability)));
        }
      });
    };
    states.dtype() == Dtype::float64 ? drop_all(0.0) : drop_all(0.0f);
  }
};

// The sums of the slopes of the gates, as gradients of the biases.
void add_biases(Backward& back, int b_ih, int b_hh, const View& slopes) {
  const std::int64_t H = slopes.extent(1) / 4;
  if (!back.needs(b_ih) && !back.needs(b_hh)) return;
  const Tensor sums = reduce_sum(slopes, {true, false}, Shape{4 * H});
  if (back.needs(b_ih)) back.add(b_ih, Tensor::copy_of(sums.view().slice(0, H, 3 * H)));
  if (back.needs(b_hh)) {
    Tensor db(Shape{3 * H}, slopes.dtype());
    const View by_gate = sums.view().split(0, 4);
    copy_rows(by_gate, 1, db.view().split(0, 3), 0, 2);
    copy_rows(by_gate, 0, db.view().split(0, 3), 2);
    back.add(b_hh, std::move(db));
  }
}

// The inputs of the op in their order on the tape.
constexpr int x_input = 0, h0_input = 1;
int first_input(std::size_t set) { return 2 + 4 * static_cast<int>(set); }

// Backward through time. A state's gradient dh' comes from above and from the next step, and then
//
//   dn = dh' (1 - z)          dz = dh' (h - n)
//   di_n = dn (1 - n^2)       ds_n = di_n r       ds_r = di_n s_n r (1 - r)      ds_z = dz z (1 - z)
//   dh = dh' z + W_hh^T ds
//   dW_hh = sum over all steps of ds h^T        dW_ih = the same of di x^T        dx = W_ih^T di
//
// with s the state's part of the gates and i the input's, which have their slopes in common but for n. Keeps r, z, n,
// s_n and h of every step, x, the weights, and what layers gave to each other.
struct BackwardThroughTime {
  Extents e;
  PackedSteps packed;
  Variable x;
  std::vector<GruWeights> weights;
  std::optional<Dropout> dropout;
  std::vector<Tensor> inputs;  // of the layers after the first: [rows, D H]
  std::vector<Kept> kept;      // of all layers and directions

  void operator()(Backward& back) const {
    Tensor dh0 = back.needs(h0_input) ? Tensor(Shape{e.layers * e.directions, e.B, e.H}, x.dtype()) : Tensor();
    Tensor dstates = back.upstream(0) ? packed.pack(back.upstream(0)) : Tensor();
    for (std::int64_t layer = e.layers - 1; layer >= 0 && needs_any(back, layer); --layer) {
      dstates = through_layer(back, layer, dstates, dh0);
    }
    if (back.needs(x_input)) back.add(x_input, packed.unpack(dstates, e.T));
    if (dh0) back.add(h0_input, std::move(dh0));
  }

 private:
  // Whether a layer or one below it has something to differentiate by.
  bool needs_any(const Backward& back, std::int64_t layer) const {
    bool needed = back.needs(x_input) || back.needs(h0_input);
    for (int i = 0; i < first_input(static_cast<std::size_t>((layer + 1) * e.directions)); ++i) needed |= back.needs(i);
    return needed;
  }

  // Takes the gradient by the layer's states, and returns that by its input, if something below needs it.
  Tensor through_layer(Backward& back, std::int64_t layer, const Tensor& dstates, Tensor& dh0) const {
    const Tensor packed_x = layer == 0 ? packed.pack(x.value()) : Tensor();
    const View input = layer == 0 ? packed_x.view() : inputs[static_cast<std::size_t>(layer - 1)].view();
    const bool needs_input = layer == 0 ? back.needs(x_input) : needs_any(back, layer - 1);
    Tensor dinput = needs_input ? Tensor::uninitialized(input.shape(), input.dtype()) : Tensor();
    for (std::int64_t d = 0; d < e.directions; ++d) {
      const std::int64_t at = layer * e.directions + d;
      const auto set = static_cast<std::size_t>(at);
      const Direction direction = {packed, d == 1};
      Tensor carry = by_place(states_of(back.upstream(1), at));
      const Tensor slopes =
          backward_direction(direction, kept[set], weights[set].W_hh,
                             dstates ? dstates.view().slice(1, d * e.H, e.H) : View(), carry, static_cast<bool>(dh0));
      const View of_inputs = slopes.view().slice(1, e.H, 3 * e.H);
      const int first = first_input(set);
      if (dinput) gemm(of_inputs, weights[set].W_ih.value(), dinput, {.accumulate = d > 0});
      if (back.needs(first)) {
        const auto dW = back.target(first);
        gemm(of_inputs.swapped(0, 1), input, dW.gradient, {.accumulate = dW.accumulate});
      }
      if (back.needs(first + 1)) {
        const auto dW = back.target(first + 1);
        const View transposed = slopes.view().swapped(0, 1), before = kept[set].before;
        gemm(transposed.slice(0, e.H, 2 * e.H), before, dW.gradient.slice(0, 0, 2 * e.H),
             {.accumulate = dW.accumulate});
        gemm(transposed.slice(0, 0, e.H), before, dW.gradient.slice(0, 2 * e.H, e.H), {.accumulate = dW.accumulate});
      }
      add_biases(back, first + 2, first + 3, slopes);
      if (dh0) {
        for (std::int64_t place = 0; place < e.B; ++place) {
          copy_rows(carry, place, as_matrix(dh0.view()), at * e.B + packed.sequence(place));
        }
      }
    }
    if (dinput && layer > 0 && dropout) dropout->drop(dinput, packed, layer);
    return dinput;
  }

  // Rows of [B, H] in the order of places; zeros where it is absent.
  Tensor by_place(const View& rows) const {
    Tensor ordered(Shape{e.B, e.H}, x.dtype());
    for (std::int64_t place = 0; rows && place < e.B; ++place) {
      copy_rows(rows, packed.sequence(place), ordered.view(), place);
    }
    return ordered;
  }
};

}  // namespace

GruStates gru(const Variable& x, const std::vector<GruWeights>& weights, const GruOptions& options) {
  const Extents e = check(x, weights, options);
  PackedSteps packed(checked_lengths(options.lengths, e));
  std::vector<Variable> tape_inputs = {x, options.h0};
  for (const GruWeights& set : weights) {
    for (const Variable& variable : {set.W_ih, set.W_hh, set.b_ih, set.b_hh}) tape_inputs.push_back(variable);
  }
  const bool recorded = is_recorded(tape_inputs);
  std::optional<Dropout> dropout;
  if (options.training && options.dropout > 0) dropout = Dropout{*options.seed, options.dropout};

  const Variable h0 = options.h0 ? dense(options.h0) : Variable();
  Tensor last(Shape{e.layers * e.directions, e.B, e.H}, x.dtype());
  std::vector<Tensor> inputs;
  std::vector<Kept> kept;
  Tensor input = packed.pack(x.value());
  for (std::int64_t layer = 0; layer < e.layers; ++layer) {
    if (layer > 0 && dropout) dropout->drop(input, packed, layer);
    Tensor states = Tensor::uninitialized(Shape{packed.rows(), e.directions * e.H}, x.dtype());
    for (std::int64_t d = 0; d < e.directions; ++d) {
      const std::int64_t at = layer * e.directions + d;
      Kept made =
          forward_direction({packed, d == 1}, input, weights[static_cast<std::size_t>(at)], states_of(h0.value(), at),
                            states.view().slice(1, d * e.H, e.H), as_matrix(last.view()).slice(0, at * e.B, e.B));
      if (recorded) kept.push_back(std::move(made));
    }
    if (recorded && layer > 0) inputs.push_back(std::move(input));
    input = std::move(states);
  }
  const std::vector<Variable> values = {Variable(packed.unpack(input, e.T)), Variable(std::move(last))};
  const std::vector<Variable> states = record(
      "gru", values, tape_inputs,
      BackwardThroughTime{e, std::move(packed), x.detach(), weights, dropout, std::move(inputs), std::move(kept)});
  return {states[0], states[1]};
}

}  // namespace qkv
