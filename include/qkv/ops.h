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

namespace qkv {

// y = x W^T + b, as PyTorch's.
//
//   x  [..., in]
//   W  [out, in]
//   b  [out], or absent
//   y  [..., out]
QKV_API Variable linear(const Variable& x, const Variable& W, const Variable& b = {});

// Element by element. Shapes are broadcast as NumPy's: aligned at the right, an extent of 1 is repeated.
QKV_API Variable add(const Variable& a, const Variable& b);
QKV_API Variable sub(const Variable& a, const Variable& b);
QKV_API Variable mul(const Variable& a, const Variable& b);
QKV_API Variable div(const Variable& a, const Variable& b);

inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return mul(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return div(a, b); }

// The sum, or the mean, over all axes (a result of rank 0) or over some. Negative axes count from the last; with
// keep_axes those that were summed over stay, with extent 1. Sums are taken in double precision. The mean over nothing
// is NaN.
struct SumOptions {
  std::vector<int> axes = {};  // {} is all
  bool keep_axes = false;
};
QKV_API Variable sum(const Variable& x, const SumOptions& options = {});
QKV_API Variable mean(const Variable& x, const SumOptions& options = {});

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
