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

struct AttendOptions {
  Score score = scaled_dot();        // how well a key answers a query
  std::optional<double> scale = {};  // instead of the score's own (1/sqrt(D) for scaled_dot, 1 for dot)
  double softcap = 0;                // c > 0: score becomes c tanh(score / c); 0 is off
  Mask mask = {};                    // which keys a query may see, what is added; {} is all, nothing
  Weigh weigh = softmax();           // how scores become weights
  OnEmpty on_empty = OnEmpty::zero;  // what a query gets that may see no key

  std::optional<Dtype> out_dtype = {};        // of `out`; the queries' dtype if not said
  bool want_lse = false;                      // the log-sum-exp of each query's scores
  bool want_weights = false;                  // the whole matrix of weights: Tq * Tk numbers per head
  ScoreStage want_scores = ScoreStage::none;  // the whole matrix of scores

  int threads = 0;  // at most so many; 0 is what thread_count() says
};

// What attend returns. Only `out` is always there; the others are absent unless asked for.
// lse, weights and scores are in the dtype of the computation: float32, or float64 for float64 inputs.
struct Attended {
  Tensor out;      // [B, H, Tq, Dv]
  Tensor lse;      // [B, H, Tq], natural logarithm; -inf for a query that may see no key
  Tensor weights;  // [B, H, Tq, Tk]
  Tensor scores;   // [B, H, Tq, Tk]
};

// Where attend_into writes; shapes and dtypes as in Attended, any strides. A view that is absent is not written.
struct AttendInto {
  MutableView out;
  MutableView lse = {};
  MutableView weights = {};
  MutableView scores = {};  // at options.want_scores
};

// Pools the values: out = sum_j weight(q, k_j) v_j for every query, without storing the weights.
//
//   q    [B, H,  Tq, D]
//   k    [B, Hk, Tk, D]     Hk divides H; consecutive query heads share a key head
//   v    [B, Hk, Tk, Dv]
//   out  [B, H,  Tq, Dv]
//
// Rank 3 is [B, T, D], one head; rank 2 is [T, D], one sequence and one head; results have the queries' rank.
// Any strides; no copy is made where the last axis is dense. Extents of 0 work. float64 is computed in float64 and
// does not mix with the others; float32, float16 and bfloat16 mix freely and are computed in float32.
//
// Order: score, scale, softcap, your edit, + bias and ALiBi, exclusion, weigh, pool.
// What the mask excludes has no influence, NaN or not, and what is excluded for all queries is not read.
// A NaN in a query or in a key or value it sees reaches its row. The result is the same, bit for bit, for any number
// of threads and whatever else is in the batch. Memory besides inputs and results: O(Tq + Tk) per head.
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
