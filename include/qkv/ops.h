// qkv/ops.h: what can be computed with variables, and differentiated.
//
// All variables of a call have one dtype, float32 or float64, and so has the result. Any strides are taken. Results are
// the same, bit for bit, for any number of threads. All throw ShapeError and DtypeError, naming the shapes involved.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <qkv/autograd.h>
#include <qkv/export.h>
#include <qkv/tensor.h>
#include <qkv/weigh.h>

namespace qkv {

// y = x W^T + b, as PyTorch's.
//
//   x  [..., in]
//   W  [out, in]
//   b  [out], or absent
//   y  [..., out]
QKV_API Variable linear(const Variable& x, const Variable& W, const Variable& b = {});

// c = a b: [..., M, K] times [..., K, N] is [..., M, N]. The axes before the last two are broadcast.
QKV_API Variable matmul(const Variable& a, const Variable& b);

// Element by element. Shapes are broadcast as NumPy's: aligned at the right, an extent of 1 is repeated.
QKV_API Variable add(const Variable& a, const Variable& b);
QKV_API Variable sub(const Variable& a, const Variable& b);
QKV_API Variable mul(const Variable& a, const Variable& b);
QKV_API Variable div(const Variable& a, const Variable& b);

// factor x
QKV_API Variable scale(const Variable& x, double factor);

inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return mul(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return div(a, b); }
inline Variable operator*(double factor, const Variable& x) { return scale(x, factor); }
inline Variable operator-(const Variable& x) { return scale(x, -1); }

// Functions of one number, element by element. The derivative of relu at 0 is 0. gelu is x times the probability that a
// normal number is below x; its tanh form is the approximation that some models were trained with.
enum class GeluForm : std::uint8_t { erf, tanh };
QKV_API Variable tanh(const Variable& x);
QKV_API Variable sigmoid(const Variable& x);
QKV_API Variable relu(const Variable& x);
QKV_API Variable gelu(const Variable& x, GeluForm form = GeluForm::erf);
QKV_API Variable exp(const Variable& x);
QKV_API Variable log(const Variable& x);

// e^x over its sum along the last axis.
QKV_API Variable softmax(const Variable& x);
// The same over the first valid_len entries of each row; see qkv/masked_softmax.h. What does not count, and rows that
// have no entries, get no gradient, whatever on_empty says.
QKV_API Variable masked_softmax(const Variable& scores, View valid_lens = {}, OnEmpty on_empty = OnEmpty::zero);

// Along the last axis: (x - mean) / sqrt(variance + epsilon) gain + shift, as PyTorch's. gain (its weight) and shift
// (its bias) are [D], or absent. Throws OptionError for an epsilon below 0.
QKV_API Variable layer_norm(const Variable& x, const Variable& gain = {}, const Variable& shift = {},
                            double epsilon = 1e-5);

// Rows of a table: y[..., :] = table[ids[...], :].
//
//   table  [V, D]
//   ids    any shape; int32 or int64, each in 0 .. V - 1
//   y      [ids' shape, D]
//
// The gradient of the table knows which rows were looked up; see Variable::grad_rows. The row `fixed`, that of padding
// for instance, gets none.
QKV_API Variable embedding(const Variable& table, View ids, std::optional<std::int64_t> fixed = {});

// With `probability` an element becomes 0; the others grow by 1 / (1 - probability). Which ones is a function of the
// seed and the element's place. Only where `training` is said, and then with a seed. Throws OptionError.
struct DropoutOptions {
  double probability = 0.5;
  bool training = false;
  std::optional<std::uint64_t> seed = {};
};
QKV_API Variable dropout(const Variable& x, const DropoutOptions& options);

// The same elements otherwise. Negative axes count from the last. All but concat see the memory of x, without a copy;
// only a reshape of what is not dense must copy.
QKV_API Variable reshape(const Variable& x, const Shape& shape);
QKV_API Variable transpose(const Variable& x, int axis_a, int axis_b);
QKV_API Variable slice(const Variable& x, int axis, std::int64_t first, std::int64_t count);
QKV_API std::vector<Variable> split(const Variable& x, int axis, const std::vector<std::int64_t>& counts);
QKV_API Variable concat(const std::vector<Variable>& parts, int axis);

// The sum, or the mean, over all axes (a result of rank 0) or over some. Negative axes count from the last; with
// keep_axes those that were summed over stay, with extent 1. Sums are taken in double precision. The mean over nothing
// is NaN.
struct SumOptions {
  std::vector<int> axes = {};  // {} is all
  bool keep_axes = false;
};
QKV_API Variable sum(const Variable& x, const SumOptions& options = {});
QKV_API Variable mean(const Variable& x, const SumOptions& options = {});

// The negative logarithm of the probability that softmax of the logits gives to the targets: its sum, or its mean over
// the rows that count; one number. Label smoothing s makes the target (1 - s) of itself and s / V of each class.
//
//   logits   [..., V]
//   targets  [...]; int32 or int64, each in 0 .. V - 1 where it counts
//   keep     [...]; boolean: true = the row counts
//
// Rows that do not count are not read and get no gradient. The mean over no rows is NaN. Also throws OptionError.
enum class Reduction : std::uint8_t { mean, sum };
struct CrossEntropyOptions {
  double smoothing = 0;
  std::optional<std::int64_t> ignore = {};  // targets of this value do not count: padding
  View keep = {};                           // all, if absent
  Reduction reduction = Reduction::mean;
};
QKV_API Variable cross_entropy(const Variable& logits, View targets, const CrossEntropyOptions& options = {});
// cross_entropy(linear(x, W, b), targets), with the logits of a few rows at a time: for large V, where all of them
// together would be most of the memory. b may be absent.
QKV_API Variable linear_cross_entropy(const Variable& x, const Variable& W, const Variable& b, View targets,
                                      const CrossEntropyOptions& options = {});

// A gated recurrent unit over whole sequences, as PyTorch's nn.GRU with batch_first, in several layers and one or both
// directions (D of them, whose states stand side by side).
//
//   r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)        n  = tanh(W_in x + b_in + r (W_hn h + b_hn))
//   z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)        h' = (1 - z) n + z h
//
//   x     [B, T, I]
//   W_ih  [3 H, I], for r, z and n in turn; [3 H, D H] from the second layer on
//   W_hh  [3 H, H]
//   b_ih  [3 H], or absent; b_hh likewise
//   all   [B, T, D H]          the last layer's state at every step
//   last  [layers D, B, H]     every layer's and direction's state after its last step
//
// A sequence ends at its length, where the other direction begins: what lies beyond is not read and `all` is 0 there.
// The last state of a sequence without steps is h0. Finished sequences cost nothing, and a sequence's states do not
// depend on what else is in the batch. Also throws OptionError.
struct GruWeights {  // of one layer and direction
  Variable W_ih, W_hh, b_ih = {}, b_hh = {};
};
struct GruOptions {
  bool both_directions = false;
  Variable h0 = {};   // [layers D, B, H]; zeros if absent
  View lengths = {};  // [B], int32 or int64, each in 0 .. T; all T if absent
  // Dropout of the states that go from layer to layer, as `dropout` does; which ones is a function of the seed, the
  // layer, and the places of sequence, step and element.
  double dropout = 0;
  bool training = false;
  std::optional<std::uint64_t> seed = {};
};
struct GruStates {
  Variable all, last;
};
// The weights of the first layer's forward direction, of its backward direction if there is one, of the second layer's
// forward direction, and so on.
QKV_API GruStates gru(const Variable& x, const std::vector<GruWeights>& weights, const GruOptions& options = {});

}  // namespace qkv
