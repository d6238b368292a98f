// qkv/nn.h: layers: ops with the parameters they learn, called and stored as PyTorch's.
//
// A layer is a struct: its parameters are members that anybody may look at, a call computes with them, and
// parameters(prefix) lists them by PyTorch's names, for optimisers and files. A model is a struct of layers:
//
//   struct Classifier {
//     nn::Embedding words;
//     nn::Linear decide;
//     Variable operator()(View ids) const { return decide(mean(words(ids), {.axes = {1}})); }
//     nn::Parameters parameters() const { return nn::join({words.parameters("words."), decide.parameters("decide.")});
//     }
//   };
//   nn::Init init(1);
//   const Classifier model{nn::Embedding(1000, 64, init), nn::Linear(64, 2, init)};
//
// Parameters are float32 or float64, by Init, and so are the inputs. Copies of a layer share its parameters. Results
// are the same, bit for bit, for any number of threads and whatever else is in the batch. Layers throw what their ops
// throw, and OptionError for sizes that make no layer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <qkv/attend.h>
#include <qkv/attend_op.h>
#include <qkv/autograd.h>
#include <qkv/cache.h>
#include <qkv/export.h>
#include <qkv/io.h>
#include <qkv/ops.h>
#include <qkv/optim.h>
#include <qkv/tensor.h>

namespace qkv::nn {

using Parameters = std::vector<NamedParameter>;

// The lists one after the other.
QKV_API Parameters join(std::initializer_list<Parameters> lists);

// Copies a file's tensors into the parameters, converted to their dtype where they are of another floating one: the
// tensor of a parameter is called `prefix` and its name. All tensors of the file whose names begin with the prefix must
// be asked for. Throws FileError that names the tensors that are missing, extra, wrongly shaped or not floating, and
// DtypeError for a number that is too large for the parameter's dtype; then no parameter has changed. OptionError: a
// name that comes twice, a variable that is no parameter.
QKV_API void load(const Parameters& parameters, const SafetensorsFile& file, const std::string& prefix = "");
// Writes them to a safetensors file. Throws what write_safetensors throws.
QKV_API void save(const std::filesystem::path& path, const Parameters& parameters,
                  const std::map<std::string, std::string>& metadata = {});

// Makes parameters, by PyTorch's names of their distributions. What is made is a function of the seed and of how much
// was made before: the same layers in the same order have the same numbers, on every machine.
//
// fan_in and fan_out of a weight [out, in] are its extents; further axes multiply both. Throws ShapeError where there
// is no fan (rank below 2).
class QKV_API Init {
 public:
  explicit Init(std::uint64_t seed, Dtype dtype = Dtype::float32);  // throws DtypeError

  Variable uniform(const Shape& shape, double low, double high);
  Variable normal(const Shape& shape, double mean = 0, double deviation = 1);
  Variable xavier_uniform(const Shape& shape, double gain = 1);    // +- gain sqrt(6 / (fan_in + fan_out))
  Variable xavier_normal(const Shape& shape, double gain = 1);     // gain sqrt(2 / (fan_in + fan_out))
  Variable kaiming_uniform(const Shape& shape, double slope = 0);  // +- sqrt(6 / ((1 + slope^2) fan_in))
  Variable kaiming_normal(const Shape& shape, double slope = 0);   // sqrt(2 / ((1 + slope^2) fan_in))
  Variable zeros(const Shape& shape) const;
  Variable ones(const Shape& shape) const;

  Dtype dtype() const { return dtype_; }
  // A number that nobody else gets from here.
  std::uint64_t next() { return made_++; }

 private:
  std::uint64_t seed_, made_ = 0;
  Dtype dtype_;
};

// Whether a call trains. Calls of layers that drop anything in training say it, always: `nn::eval` or
// `nn::train(seed)`. What is dropped is a function of the seed, of the layer and of the elements' places, so that the
// layers of a model take one seed, a new one each step.
struct Mode {
  bool training = false;
  std::uint64_t seed = 0;
};
inline constexpr Mode eval = {};
constexpr Mode train(std::uint64_t seed) { return {true, seed}; }

// nn.Linear: y = x weight^T + bias. At first +-1 / sqrt(in).
struct LinearOptions {
  bool bias = true;
};
struct QKV_API Linear {
  Linear(std::int64_t in, std::int64_t out, Init& init, const LinearOptions& options = {});

  Variable operator()(const Variable& x) const;  // [..., in] to [..., out]
  Parameters parameters(const std::string& prefix = "") const;

  Variable weight;  // [out, in]
  Variable bias;    // [out], or absent
};

// nn.Embedding: rows of a table by their numbers. At first normal. The row `padding` starts as zeros and gets no
// gradient.
struct EmbeddingOptions {
  std::optional<std::int64_t> padding = {};  // PyTorch's padding_idx
};
struct QKV_API Embedding {
  Embedding(std::int64_t rows, std::int64_t width, Init& init, const EmbeddingOptions& options = {});

  Variable operator()(View ids) const;  // int32 or int64, any shape, to [ids' shape, width]
  Parameters parameters(const std::string& prefix = "") const;

  Variable weight;  // [rows, width]
  EmbeddingOptions options;
};

// nn.Dropout. `init` tells it apart from other layers of one seed.
struct QKV_API Dropout {
  Dropout(double probability, Init& init);

  Variable operator()(const Variable& x, const Mode& mode) const;

  double probability;
  std::uint64_t stream;  // which of the seed's random numbers are this layer's
};

// nn.LayerNorm over the last axis. At first weight 1 and bias 0.
struct LayerNormOptions {
  double epsilon = 1e-5;
  bool affine = true;  // whether there is a weight
  bool bias = true;    // whether there is a bias too
};
struct QKV_API LayerNorm {
  LayerNorm(std::int64_t width, Init& init, const LayerNormOptions& options = {});

  Variable operator()(const Variable& x) const;  // [..., width]
  Parameters parameters(const std::string& prefix = "") const;

  Variable weight, bias;  // [width], or absent
  std::int64_t width;
  LayerNormOptions options;
};

// nn.GRU with batch_first. At first +-1 / sqrt(H). Shapes and formulas: `gru` in qkv/ops.h.
struct GruLayerOptions {
  std::int64_t layers = 1;
  bool both_directions = false;
  bool bias = true;
  double dropout = 0;  // of the states that go from layer to layer, in training
};
struct GruInput {
  Variable h0 = {};   // [layers D, B, H]; zeros if absent
  View lengths = {};  // [B]; all T if absent
};
struct QKV_API Gru {
  Gru(std::int64_t in, std::int64_t hidden, Init& init, const GruLayerOptions& options = {});

  GruStates operator()(const Variable& x, const Mode& mode, const GruInput& input = {}) const;
  Parameters parameters(const std::string& prefix = "") const;  // weight_ih_l0, ..., bias_hh_l1_reverse

  std::vector<GruWeights> weights;  // of each layer, forward and then backward
  GruLayerOptions options;
  std::uint64_t stream;
};

// Attention layers take the options of attend, so every mask, weighing and edit goes: all but score, dropout, training
// and seed, which are the layer's and must be left as they are. What a mask borrows must live until backward has run.

struct AttentionOptions {
  double dropout = 0;  // of weights, in training
};

// The textbook's DotProductAttention: scaled dot products, nothing to learn. Shapes as attend's, heads or none.
struct QKV_API DotProductAttention {
  explicit DotProductAttention(Init& init, const AttentionOptions& attention = {});

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const Mode& mode,
                      const AttendOptions& options = {}) const;

  AttentionOptions attention;
  std::uint64_t stream;
};

// The textbook's AdditiveAttention: w_v^T tanh(W_q q + W_k k), without biases. Shapes as attend's. At first as Linear.
struct QKV_API AdditiveAttention {
  AdditiveAttention(std::int64_t query_width, std::int64_t key_width, std::int64_t hidden_width, Init& init,
                    const AttentionOptions& attention = {});

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const Mode& mode,
                      const AttendOptions& options = {}) const;
  // Keys that are asked many times, as those of a decoder: they are projected once, and that is differentiated once.
  PreparedVariables prepare(const Variable& k, const Variable& v, View valid_lens = {}) const;
  Variable operator()(const Variable& q, const PreparedVariables& keys, const Mode& mode,
                      const AttendOptions& options = {}) const;
  Parameters parameters(const std::string& prefix = "") const;  // W_q.weight, W_k.weight, w_v.weight

  Variable W_q, W_k, w_v;  // [E, Dq], [E, Dk], [1, E]
  AttentionOptions attention;
  std::uint64_t stream;
};

struct MultiHeadOptions {
  std::int64_t query_width = 0;                 // d_q
  std::int64_t key_width = 0, value_width = 0;  // d_k, d_v; 0: d_q
  std::int64_t heads = 1;                       // H, divides d_q unless p_q is said
  std::int64_t key_heads = 0;                   // Hk, divides H: as many query heads share a key head; 0: H
  std::int64_t head_query_width = 0;            // p_q; 0: d_q / H
  std::int64_t head_key_width = 0;              // p_k; 0: p_q, which it must be but for bilinear and additive
  std::int64_t head_value_width = 0;            // p_v; 0: p_q
  std::int64_t output_width = 0;                // p_o; 0: d_q
  bool bias = true;                             // of all four projections
  double dropout = 0;                           // of weights, in training

  // How heads score. What a score carries is learned with the layer, so views are left out, bilinear({}) and
  // additive({}, {}, {}), and gaussian(2) starts with this bandwidth. Functions of yours are borrowed.
  Score score = scaled_dot();
  std::int64_t hidden_width = 0;  // additive: E; 0: p_k
  bool shared_score = false;      // one set of what the score carries for all heads, not one a head
};

// What the score of the heads carries, as far as the score has it. Without the leading H where the heads share it.
struct QKV_API HeadScore {
  Score kind;                                                          // with no views
  Variable matrix = {};                                                // bilinear: M [H, p_q, p_k]
  Variable query_weights = {}, key_weights = {}, hidden_weights = {};  // additive: [H, E, p_q], [H, E, p_k], [H, E]
  Variable bandwidths = {};                                            // kernels: [H, 1]; [1] where shared

  Score score() const;  // with views of the above
  Parameters parameters(const std::string& prefix = "") const;
};

// Keys and values of a MultiHeadAttention, projected and made ready to be asked many times.
struct PreparedHeads {
  PreparedVariables keys;
  Variable query_weight, query_bias;  // of the asks, so that their gradients are gathered first
};

// What a call with weights returns; weights are those before dropout, and have no gradient.
struct MultiHeadAttended {
  Variable out;
  Tensor weights;  // [B, H, Tq, Tk]
};

// H heads, each with projections of its own of queries, keys and values and a score of any kind; their answers side by
// side are projected once more. With the score scaled_dot, and widths as PyTorch has them, it is nn.MultiheadAttention
// with batch_first; its parameters are PyTorch's, and in the same places if some widths differ.
//
//   query  [B, Tq, d_q]      head_i = attend(W_i^q query, W_i^k key, W_i^v value)
//   key    [B, Tk, d_k]      y      = W_o [head_1 ... head_H]
//   value  [B, Tk, d_v]
//   y      [B, Tq, p_o]
//
// Projections of all heads and sequences are one matrix product each; where query, key and value (or the last two) are
// the same variable and as wide, one for them together. Heads are views of the products: nothing is transposed.
// Masks broadcast over [B, H, Tq, Tk]. Where PyTorch's masks say True for what is not seen, so does `drop`.
struct QKV_API MultiHeadAttention {
  MultiHeadAttention(const MultiHeadOptions& widths, Init& init);

  Variable operator()(const Variable& query, const Variable& key, const Variable& value, const Mode& mode,
                      const AttendOptions& options = {}) const;
  // Self-attention.
  Variable operator()(const Variable& x, const Mode& mode, const AttendOptions& options = {}) const {
    return (*this)(x, x, x, mode, options);
  }
  // With the weights of every head, which cost a second pass.
  MultiHeadAttended with_weights(const Variable& query, const Variable& key, const Variable& value, const Mode& mode,
                                 const AttendOptions& options = {}) const;

  // Cross-attention to keys that are asked many times. valid_lens as `prepare` takes them (qkv/prepared.h).
  PreparedHeads prepare(const Variable& key, const Variable& value, View valid_lens = {}) const;
  Variable operator()(const Variable& query, const PreparedHeads& keys, const Mode& mode,
                      const AttendOptions& options = {}) const;

  // Self-attention step by step, without gradients: x, [B, T, d_q], are the next tokens of B sequences. Their keys and
  // values are appended to the cache, and they see themselves and all before: the steps together are one pass with
  // causal(). A cache serves this layer alone and must not outlive its parameters.
  Variable step(const Variable& x, Cache& cache, const AttendOptions& options = {}) const;
  // An empty cache of B sequences. `cache` may say all but the score; of a float64 layer it holds float64.
  Cache make_cache(std::int64_t B, CacheOptions cache = {}) const;

  // in_proj_weight, or where d_q, d_k and d_v differ q_proj_weight, k_proj_weight, v_proj_weight; in_proj_bias;
  // out_proj.weight, out_proj.bias; score.matrix and the like.
  Parameters parameters(const std::string& prefix = "") const;

  MultiHeadOptions widths;                               // all said
  Variable in_proj_weight;                               // [H p_q + Hk p_k + Hk p_v, d_q], or absent
  Variable q_proj_weight, k_proj_weight, v_proj_weight;  // [H p_q, d_q], [Hk p_k, d_k], [Hk p_v, d_v], or absent
  Variable in_proj_bias;                                 // [H p_q + Hk p_k + Hk p_v], or absent
  Linear out_proj;                                       // [p_o, H p_v]
  HeadScore score;
  std::uint64_t stream;
};

}  // namespace qkv::nn
