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
#include <limits>
#include <type_traits>

#include <qkv/isa.h>

namespace qkv::kernels {

// A kernel of the distance u = |q - k| / sigma; see qkv/score.h.
enum class DistanceKernel : std::uint8_t { gaussian, laplace, boxcar, triangular, epanechnikov };

// Which rows of a panel do not see a key: bit r stands for row r.
using RowBits = std::uint64_t;

// A hint to the cache: streams of lines that will be read soon. Every tile asks for so many lines of each; all at once
// would have to be waited for.
struct Ahead {
  static constexpr int line = 64;  // bytes
  struct Stream {
    std::uintptr_t at;
    std::ptrdiff_t step;
  };
  static constexpr int max_streams = 12;
  Stream streams[max_streams];
  int count = 0;
  int lines = 0;
};

// In which order few rows read many keys, which come from memory.
struct Reading {
  int apart = 1;  // 1: a block is one stream; decode_streams of so many keys otherwise, a key of each in turn
  int ahead = 0;  // the cache is told of the key that comes so many keys later in a stream; 0: it is not
};

// Fills scores[j * lanes + r] for first <= j < last with
//
//   dot              q_r . k_j
//   additive         offset - 2 sum_e hidden[e] / (1 + q_re k_je), where q and k hold e^(2 projection), each between
//                    e^-21.5 and e^21.5: the product of two denominators does not overflow
//   additive_direct  sum_e hidden[e] tanh(q_re + k_je), where q and k hold the projections
//   distance         unit * ln(kernel(u)), or the kernel's value itself where `unit` is 0;
//                    u^2 = per_row[r] * sum_c per_coordinate[c] (q_rc - k_jc)^2
//
// A NaN in q_r or k_j makes the score NaN.
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
  // What masks say pair by pair, as an edit on the way: one of the two, or none. Dot of panels only, with row_max.
  const T* added = nullptr;           // as in EditArgs
  bool added_is_finite = false;       // nothing is excluded
  bool added_is_far = false;          // beyond the second-level cache: the next keys' is asked for ahead
  const RowBits* excluded = nullptr;  // [keys]
  Ahead* ahead = nullptr;             // dot of panels only; its streams move on
  // Dot of panels only: `lanes` are the first of so many, at which keys are apart in queries and scores, 0: all of
  // them.
  int panel_lanes = 0;
  Reading reading = {};  // dot of decode only
  // Additive.
  const T* hidden = nullptr;  // [depth]
  T offset = 0;               // the sum of `hidden`
  // Distances.
  DistanceKernel kernel = DistanceKernel::gaussian;
  const T* per_row = nullptr;         // 1 / sigma^2; max(lanes, vector) entries, repeated to fill
  const T* per_coordinate = nullptr;  // [depth], or null: all 1
  T unit = 1;
};

// An edit changes scores first <= j < last in place. The last edit of a list raises row_max.
// For the list of edits in use see attention/block_loop.cpp.
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
  T cap = 0;                                         // score = cap * tanh(score / cap)
  T excluded = -std::numeric_limits<T>::infinity();  // what an excluded score becomes
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
  // [lanes] or null: the running sum of weight * log2(weight), both relative to `max`; 0 at first.
  T* entropy = nullptr;
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
  Reading reading = {};  // decode only; values are added in the order in which they are read
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

// Adds up the columns of a block of weights: mass[j * vector + i] += over v of weights[j * lanes + v * vector + i] *
// factors[v * vector + i], for j < keys. `lanes` is a multiple of the vector's length.
template <class T>
struct MassArgs {
  const T* weights;
  int lanes;
  int keys;
  const T* factors;  // [lanes]
  T* mass;
};

// Dropout: weights[j * lanes + r], j < keys, r < rows, becomes 0 where random_bits(row_keys[r], first_key + j) (see
// base/random.h) is below `threshold`, and is multiplied by `factor` elsewhere.
template <class T>
struct DropArgs {
  T* weights;
  int lanes;
  int rows;
  int keys;
  std::int64_t first_key;
  const std::uint64_t* row_keys;  // [rows]
  std::uint32_t threshold;
  T factor;
};

// The same for blocks of both layouts.
template <class T>
struct WeighKernels {
  // The weights are the scores themselves: adds them up in sum[r] and sets rescale[r] to 1. Where entropy is asked for,
  // it adds weight * log2|weight|, 0 for a weight of 0, to entropy[r], and |weight| to max[r], which is no maximum
  // here: where it is |sum[r]|, bit for bit, all weights have the same sign.
  void (*add_up)(const WeighArgs<T>&);
  void (*drop)(const DropArgs<T>&);
  void (*mass)(const MassArgs<T>&);
};
template <class T>
const WeighKernels<T>& weigh_kernels(Isa isa);

// Finds the places j * lanes + r, first <= j < last, in rising order, where scores are not <= thresholds[r], NaN
// among them.
template <class T>
struct AboveArgs {
  const T* scores;
  int lanes;
  int first, last;
  const T* thresholds;   // max(lanes, vector) entries, repeated to fill
  std::int32_t* places;  // has room for (last - first) * lanes
};

// A key's place among all keys, as wide as a score, so that the two go side by side in vectors; and as many bits.
template <class T>
using KeyIndex = std::conditional_t<sizeof(T) == sizeof(std::int32_t), std::int32_t, std::int64_t>;
template <class T>
using MarkWord = std::make_unsigned_t<KeyIndex<T>>;

inline constexpr int best_slots = 8;

// Puts the best scores of a block among the best so far of each lane. Lane e is row e; where a vector holds several
// keys, it is row e % lanes, and a row has several lanes, each with the best of its own keys.
//
// A lane has best_slots slots, slot i at i * stride + e, the best first; of equal scores the earlier key comes first.
// The first `kept` hold its best, the others scores that may not be. At first all hold -inf, which is never among the
// best, or +inf in lanes beyond the rows, which nothing enters. A NaN takes the first slot for good; what the others
// hold is then of no use.
template <class T>
struct KeepArgs {
  T* scores;  // what is beyond the last key, up to a whole vector, is overwritten
  int lanes;
  int keys;
  std::int64_t first_key;  // of the block; blocks come in the order of their keys
  int kept;                // at most best_slots
  T* best;
  KeyIndex<T>* indices;
  std::ptrdiff_t stride;  // at least max(lanes, vector)
  // Scratch.
  MarkWord<T>* marks;          // [keys + 1][vector]
  T* queue;                    // [keys + 3][vector]
  KeyIndex<T>* queue_numbers;  // the same
};

template <class T>
struct BestKernels {
  int (*above)(const AboveArgs<T>&);  // the number of places
  void (*keep)(const KeepArgs<T>&);
};
template <class T>
const BestKernels<T>& best_kernels(Isa isa);

// Scores that are not dot products.
template <class T>
struct ScoreKernels {
  void (*additive)(const ScoreArgs<T>&);
  void (*additive_direct)(const ScoreArgs<T>&);
  void (*distance)(const ScoreArgs<T>&);
};
template <class T>
const ScoreKernels<T>& panel_score_kernels(Isa isa);
template <class T>
const ScoreKernels<T>& decode_score_kernels(Isa isa);  // keys are T

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
inline constexpr int decode_streams = 4;
inline constexpr int decode_pad = 16;  // scores have room for a whole number of so many keys
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
