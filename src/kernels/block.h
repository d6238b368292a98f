// kernels/block.h: what the kernels of attention hand to each other: one block of scores, key by key.
//
// A block is the scores of a panel of queries against at most a few hundred keys. It lies key-major: the score of row r
// and key j is scores[j * lanes + r], where r counts the panel's rows and `lanes` is their number rounded up. Softmax
// then runs down the block with no reduction across a vector. `lanes` is either a multiple of the vector's length (the
// panel kernel) or a power of two below it (the decode kernel; a vector then holds several keys).
//
// Scores on their way to be weighed are in units of ln(2), so that a weight is 2^(score - max): the factor costs
// nothing where queries, slopes and biases are scaled, and 2^x is cheaper than e^x.
//
// Score, edits, weigh and pool are plain functions on such a block, chosen once per call and called once per block.
// They know nothing of batches, heads or masks' meaning; they check nothing, allocate nothing and throw nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include <qkv/isa.h>

namespace qkv::kernels {

// Fills scores[j * lanes + r] for first <= j < last with q_r . k_j.
template <class T>
struct ScoreArgs {
  const T* queries;  // panel: [depth][lanes]; decode: [lanes][depth rounded up to whole vectors, zeros behind]
  const void* keys;  // row j at keys + j * key_stride elements; T for panel, the storage type for decode
  std::ptrdiff_t key_stride;
  int depth;
  int lanes;
  int first, last;
  T* scores;
  T* row_max;  // [lanes], raised to the scores' maximum, or null where an edit follows. NaN may or may not raise it.
  const T* added = nullptr;  // as in EditArgs, with the edit done on the way; panel only, together with row_max
};

// An edit changes scores first <= j < last in place. The last edit of a list raises row_max.
// For a list of edits in use see attention/edits.h.
template <class T>
struct EditArgs {
  T* scores;
  int lanes;
  int first, last;
  T* row_max;  // [lanes] or null
  // What the edit needs; unused ones are null. Arrays per row have max(lanes, vector) entries, repeated to fill.
  const T* added = nullptr;      // [keys][lanes]: added to the score; -inf excludes whatever the score was
  const T* slopes = nullptr;     // per row: score -= slope * |position - j|
  const T* positions = nullptr;  // per row, counted from the block's first key
  const T* begins = nullptr;     // per row: keys j < begin and j >= end are excluded
  const T* ends = nullptr;
  T cap = 0;  // score = cap * tanh(score / cap)
};

// Turns scores into weights 2^(score - max) relative to the rows' running maxima.
template <class T>
struct WeighArgs {
  T* scores;  // becomes the weights
  int lanes;
  int keys;
  const T* row_max;  // [lanes], of this block; panel only, decode finds it itself
  T* max;            // [lanes], running; -inf at first, and as long as all scores were -inf or NaN
  T* sum;            // [lanes], running sum of weights; 0 at first
  T* rescale;        // [lanes], what earlier sums must be multiplied by
};

// sums[r][c] = sums[r][c] * rescale[r] + over j < keys of weights[j * lanes + r] * values[j][c].
template <class T>
struct PoolArgs {
  const T* weights;
  int lanes;
  int rows;  // of lanes, those that are pooled
  // Row j at values + j * value_stride elements. Panel: of T, its strips of `strip` columns strip_stride apart, so that
  // values may lie in strips, each [keys][strip], or in whole rows. Decode: of the storage type, in whole rows.
  const void* values;
  std::ptrdiff_t value_stride, strip_stride;
  int width;
  int keys;
  T* sums;  // row r at sums + r * sum_stride; rows have room for whole vectors
  std::ptrdiff_t sum_stride;
  const T* rescale;  // null for the first block: sums start from 0
  // Per row, or null: the first and the one-past-last key with a weight that is not zero. Keys outside are not read
  // where all rows of a tile agree.
  const T* begins = nullptr;
  const T* ends = nullptr;
  // Panel: sums[r][c] * factors[r] goes to out, whose rows have room for whole vectors. That is sums itself, with
  // factors of 1, as long as there are more blocks.
  const T* factors = nullptr;
  T* out = nullptr;
  std::ptrdiff_t out_stride = 0;
};

// rows of source (T, row r at source + r * stride, `columns` long) times scale, to target[column][lanes]; missing rows
// are zeros.
template <class T>
struct TransposeArgs {
  const T* source;
  std::ptrdiff_t stride;
  int rows, columns;
  T scale;
  T* target;
  int lanes;
};

// Rows of values (T, row r at source + r * stride, `width` long) to their places in strips, with zeros behind the last
// column; see PoolArgs. The answer is whether all are finite.
template <class T>
struct SpreadArgs {
  const T* source;
  std::ptrdiff_t stride;
  int rows, width;
  T* target;
  std::ptrdiff_t strip_stride;
};

// The kernels of one instruction set, with the sizes they were tuned for.
template <class T>
struct PanelKernels {
  int vector;        // lanes of a vector
  int max_vectors;   // of a panel
  int block_keys;    // keys in a block
  int group_panels;  // panels that share a block of keys and values while it is in the second-level cache
  int strip;         // columns of a strip of values
  int tile_keys;     // keys that are scored together; a run of keys is best a multiple of it
  void (*transpose)(const TransposeArgs<T>&);
  bool (*spread)(const SpreadArgs<T>&);
  void (*score)(const ScoreArgs<T>&);
  void (*weigh)(const WeighArgs<T>&);
  void (*pool)(const PoolArgs<T>&);
};
template <class T>
const PanelKernels<T>& panel_kernels(Isa isa);

template <class T>
struct EditKernels {
  void (*softcap)(const EditArgs<T>&);
  void (*add)(const EditArgs<T>&);      // added
  void (*alibi)(const EditArgs<T>&);    // slopes, positions
  void (*limit)(const EditArgs<T>&);    // begins, ends
  void (*maximum)(const EditArgs<T>&);  // changes nothing, raises row_max
};
template <class T>
const EditKernels<T>& edit_kernels(Isa isa);

// Few rows, many keys. Keys and values are read in their storage type, each once for all rows.
inline constexpr int decode_rows = 8;    // at most, of one pass
inline constexpr int decode_keys = 512;  // keys in a block: runs of 64 lost 15 % of the bandwidth (PERFORMANCE.md)
inline constexpr int decode_pad = 16;    // scores have room for a whole number of so many keys
template <class T>
struct DecodeKernels {
  int vector;
  void (*weigh)(const WeighArgs<T>&);
  // By storage type: that of T itself, float16, bfloat16 (the latter two for float only).
  void (*score[3])(const ScoreArgs<T>&);
  void (*pool[3])(const PoolArgs<T>&);
};
template <class T>
const DecodeKernels<T>& decode_kernels(Isa isa);

}  // namespace qkv::kernels
