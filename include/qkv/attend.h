// qkv/attend.h: attention: every query asks the keys and gets back a weighted sum of the values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <qkv/export.h>
#include <qkv/mask.h>
#include <qkv/score.h>
#include <qkv/tensor.h>
#include <qkv/weigh.h>

namespace qkv {

// At which point the whole score matrix is taken, where it is asked for.
enum class ScoreStage : std::uint8_t {
  none,
  scaled,  // after the scale; every pair, excluded ones too, so every key is read
  capped,  // after the softcap; likewise
  biased,  // after bias, ALiBi and exclusion; excluded pairs are -inf
};

// What the state of an answer is, by its weighing: what merge and attend_backward need of each query.
enum class PartialState : std::uint8_t {
  none,     // not asked for
  answer,   // raw: the answer itself is enough
  log_sum,  // softmax, top_k, and kernels under normalize: the log-sum-exp
  sum,      // other scores under normalize: the sum
  count,    // uniform: how many keys were seen
  best,     // hard: the best score and its place
};

struct AttendOptions {
  Score score = scaled_dot();        // how well a key answers a query
  std::optional<double> scale = {};  // of dot, scaled_dot, cosine and bilinear, instead of 1 or scaled_dot's 1/sqrt(D)
  double softcap = 0;                // c > 0: score becomes c tanh(score / c); 0 is off; not for kernels
  Mask mask = {};                    // which keys a query may see, what is added; {} is all, nothing
  double temperature = 1;            // > 0; divides the score after all that is added
  Weigh weigh = softmax();           // how scores become weights
  OnEmpty on_empty = OnEmpty::zero;  // what a query gets that may see no key

  // Dropout of weights after weighing: with probability `dropout` a weight becomes 0, the others grow by 1/(1-dropout).
  // Only where `training` is said, and then with a seed. Which weights go is a function of the seed, the sequence's id
  // and the places of head, query and key; what is asked for besides `out` is of the weights before dropout.
  double dropout = 0;
  bool training = false;
  std::optional<std::uint64_t> seed = {};
  View sequence_ids = {};  // [B], int32 or int64; if absent, the place in the batch

  std::optional<Dtype> out_dtype = {};        // of `out`; the queries' dtype if not said
  bool want_lse = false;                      // the log-sum-exp of each query's scores
  bool want_weights = false;                  // the whole matrix of weights: Tq * Tk numbers per head
  View want_rows = {};                        // the weights of these queries only: [R], int32 or int64
  ScoreStage want_scores = ScoreStage::none;  // the whole matrix of scores
  bool want_mass = false;                     // what each key got, from all queries together
  std::int64_t want_top = 0;                  // so many of the largest scores of each query: their weights and places
  bool want_entropy = false;                  // of each query's weights, in nats
  bool want_effective = false;                // the effective number of keys, e^entropy
  bool want_partial = false;                  // what merge needs; see qkv/merge.h
  bool want_backward = false;                 // what attend_backward needs; see qkv/attend_backward.h

  int threads = 0;  // at most so many; 0 is what thread_count() says
};

// What attend returns. Only `out` is always there; the others are absent unless asked for.
// All but `out` and the places are in the dtype of the computation: float32, or float64 for float64 inputs.
struct Attended {
  Tensor out;          // [B, H, Tq, Dv]
  Tensor lse;          // [B, H, Tq], natural logarithm; -inf for a query that may see no key. Of softmax and top_k: of
                       // the scores over the temperature; of normalize: the logarithm of the sum.
  Tensor weights;      // [B, H, Tq, Tk]
  Tensor row_weights;  // [B, H, R, Tk]
  Tensor scores;       // [B, H, Tq, Tk]
  Tensor mass;         // [B, H, Tk]: the sums of the columns of the weights
  Tensor top_weights;  // [B, H, Tq, want_top], by falling score; 0 where fewer keys are seen
  Tensor top_indices;  // the same shape, int64; -1 where fewer keys are seen
  Tensor entropy;      // [B, H, Tq]; 0 for a query that may see no key
  Tensor effective;    // [B, H, Tq]; 0 for a query that may see no key
  Tensor state;        // [B, H, Tq], what merge and attend_backward need: log-sum-exp, sum, count or best score
  Tensor index;        // [B, H, Tq], int64: the place of the best score; -1 for none
  PartialState state_kind = PartialState::none;
  Tensor chosen;  // [B, H, Tq, k], int64, what attend_backward needs of top_k: the places of the k best; -1 for none
};

// Where attend_into writes; shapes and dtypes as in Attended, any strides. A view that is absent is not written.
struct AttendInto {
  MutableView out;
  MutableView lse = {};
  MutableView weights = {};
  MutableView scores = {};       // at options.want_scores
  MutableView row_weights = {};  // of options.want_rows
  MutableView mass = {};
  MutableView top_weights = {}, top_indices = {};  // options.want_top of them
  MutableView entropy = {};
  MutableView effective = {};
};

// Pools the values: out = sum_j weight(q, k_j) v_j for every query, without storing the weights.
//
//   q    [B, H,  Tq, D]     the widths of q and k may differ with bilinear and additive
//   k    [B, Hk, Tk, D]     Hk divides H; consecutive query heads share a key head
//   v    [B, Hk, Tk, Dv]
//   out  [B, H,  Tq, Dv]
//
// Rank 3 is [B, T, D], one head; rank 2 is [T, D], one sequence and one head; results have the queries' rank.
// Any strides; no copy is made where the last axis is dense. Extents of 0 work. float64 is computed in float64 and
// does not mix with the others; float32, float16 and bfloat16 mix freely and are computed in float32.
//
// Order: score, scale, softcap, your edit, + bias and ALiBi, / temperature, exclusion, weigh, dropout, pool.
// What the mask excludes has no influence, NaN or not, and what is excluded for all queries is not read.
// A NaN in a query or in a key or value it sees reaches its row. The result is the same, bit for bit, for any number
// of threads and whatever else is in the batch. Memory besides inputs and results: O(Tq + Tk) per head (O(k Tq) with
// top_k).
// Safe to call from several threads at once. Throws ShapeError, OptionError, DtypeError.
QKV_API Attended attend(View q, View k, View v, const AttendOptions& options = {});

// The same into the caller's memory, which must not overlap the inputs.
QKV_API void attend_into(View q, View k, View v, const AttendInto& into, const AttendOptions& options = {});

// What attend would do, without doing it.
struct Plan {
  std::string kernel;           // "panel": tiles of queries by keys; "decode": few queries, streams of keys
  std::string why;              // one sentence
  std::string isa;              // the instruction set: "avx512", "avx2", "baseline"
  std::int64_t panel = 0;       // queries that share a pass over a block
  std::int64_t block = 0;       // keys in a block
  std::int64_t tasks = 0;       // independent pieces of work
  int threads = 0;              // that will work on them
  std::int64_t peak_bytes = 0;  // of memory besides inputs and results, all threads together
};
QKV_API Plan plan(View q, View k, View v, const AttendOptions& options = {});

}  // namespace qkv
