// kernels/decode.cpp: few queries, many keys: every key and value is read once, in order, from memory.
//
// Bound by memory. One stream alone reads 85 % of what the machine can; a block is read as four streams, a key of each
// in turn (Zen 3: 20 GB/s with one, 25 with four, 15 with eight, of 26.7). Row r's result does not depend on how many
// rows share the pass: dot products always use the same two partial sums, weights are summed by key modulo 16, values
// are added in the order in which they are read.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/block.h"
#include "kernels/half-inl.h"
#include "kernels/isa.h"
#include "kernels/processor.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

constexpr int streams = 4;
constexpr int stream_keys = decode_keys / streams;

// Intel's processors look ahead too little where streams take turns, and are told of the rows that come next in a
// stream (Emerald Rapids: 4 to 14 % faster; 8 and 16 rows bring less at D = 128). AMD's do better by themselves.
constexpr int rows_ahead = 4;

template <class Stored>
HWY_INLINE void ask_for(const Stored* row, int width) {
  constexpr int line = 64 / static_cast<int>(sizeof(Stored));
  for (int c = 0; c < width; c += line) __builtin_prefetch(row + c);  // a hint: it may point anywhere
}

// The dot products of one key with `rows` queries.
template <int rows, class T, class Stored>
HWY_INLINE void score_key(const Stored* HWY_RESTRICT key, const T* HWY_RESTRICT queries, std::ptrdiff_t query_stride,
                          int depth, T* HWY_RESTRICT scores) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  Vec<T> even[rows], odd[rows];
  for (int r = 0; r < rows; ++r) even[r] = odd[r] = hn::Zero(d);
  const auto add = [&](Vec<T>(&sum)[rows], Vec<T> part, int c) {
    for (int r = 0; r < rows; ++r) sum[r] = hn::MulAdd(part, hn::Load(d, queries + r * query_stride + c), sum[r]);
  };
  int c = 0;
  for (; c + 2 * L <= depth; c += 2 * L) {
    add(even, load_widened<T>(key + c), c);
    add(odd, load_widened<T>(key + c + L), c + L);
  }
  if (c + L <= depth) {
    add(even, load_widened<T>(key + c), c);
    c += L;
  }
  if (c < depth) add(odd, load_some<T>(key + c, depth - c), c);
  for (int r = 0; r < rows; ++r) scores[r] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even[r], odd[r])));
}

// The widths of most heads, as constants: loops over them unroll. 0 stands for all others, and for all where nobody is
// in a hurry: in double, and without vectors.
template <class T, class Run>
HWY_INLINE void with_width(int width, Run run) {
  if constexpr (std::is_same_v<T, float> && HWY_TARGET != HWY_SCALAR) {
    if (width == 64) return run(std::integral_constant<int, 64>());
    if (width == 128) return run(std::integral_constant<int, 128>());
  }
  run(std::integral_constant<int, 0>());
}

template <int lanes, int width, class T, class Stored>
HWY_INLINE void score_rows(const ScoreArgs<T>& args) {
  const int depth = width != 0 ? width : args.depth;
  constexpr int at_once = std::min(lanes, 4);  // more would not fit the registers
  const std::ptrdiff_t query_stride = (depth + lanes_of<T> - 1) / lanes_of<T> * lanes_of<T>;
  const Stored* keys = static_cast<const Stored*>(args.keys);
  const bool asks = is_intel();
  for (int first = args.first; first < std::min(args.first + stream_keys, args.last); ++first) {
    // Rolled on purpose: unrolled, the compiler mixes the loads of several keys and the bandwidth halves.
#pragma GCC unroll 1
    for (int j = first; j < args.last; j += stream_keys) {
      const Stored* key = keys + j * args.key_stride;
      if (asks) ask_for(key + rows_ahead * args.key_stride, depth);
      for (int r = 0; r < lanes; r += at_once) {
        score_key<at_once>(key, args.queries + r * query_stride, query_stride, depth, args.scores + j * lanes + r);
      }
    }
  }
}

template <class T, class Stored>
void score(const ScoreArgs<T>& args) {
  with_width<T>(args.depth, [&](auto width) {
    switch (args.lanes) {
      case 1:
        return score_rows<1, width, T, Stored>(args);
      case 2:
        return score_rows<2, width, T, Stored>(args);
      case 4:
        return score_rows<4, width, T, Stored>(args);
      default:
        return score_rows<8, width, T, Stored>(args);
    }
  });
}

// The sum of a row's partial sums, which lie by (key modulo 16, row).
template <class T>
HWY_INLINE T folded(T* partial, int lanes, int r) {
  for (int half = decode_pad / 2; half > 0; half /= 2) {
    for (int key = 0; key < half; ++key) partial[key * lanes + r] += partial[(key + half) * lanes + r];
  }
  return partial[r];
}

// Scores become weights; see WeighArgs. A group of 16 keys is a whole number of vectors for any number of rows, so sums
// and maxima are kept per (key modulo 16, row) and folded at the end. For the entropy see panel.cpp.
template <bool with_entropy, class T>
void weigh_rows(const WeighArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  const int lanes = args.lanes, group = decode_pad * lanes;
  const int padded = (args.keys + decode_pad - 1) / decode_pad * group;
  for (int i = args.keys * lanes; i < padded; ++i) args.scores[i] = lowest;

  HWY_ALIGN T partial[decode_pad * decode_rows];
  HWY_ALIGN T references[decode_pad * decode_rows] = {};  // all that are read are set; g++ does not see it
  HWY_ALIGN T entropies[with_entropy ? decode_pad * decode_rows : 1];
  for (int i = 0; i < group; ++i) partial[i] = lowest;
  for (int at = 0; at < padded; at += group) {
    for (int i = 0; i < group; i += L) {
      hn::Store(max_of_numbers(hn::Load(d, partial + i), hn::Load(d, args.scores + at + i)), d, partial + i);
    }
  }
  for (int r = 0; r < lanes; ++r) {
    const T before = args.max[r];
    T now = before;
    for (int i = r; i < group; i += lanes) now = std::max(now, partial[i]);
    // A row that has seen nothing has no maximum to subtract; see panel.cpp.
    const T reference = now == lowest ? T(0) : now;
    args.rescale[r] = hn::GetLane(exp2<Reach::weights>(d, hn::Set(d, before - reference)));
    if constexpr (with_entropy) {
      const T moved = hn::GetLane(bounded_for_exp2<Reach::weights>(d, hn::Set(d, before - reference)));
      args.entropy[r] = (args.entropy[r] + args.sum[r] * moved) * args.rescale[r];
    }
    args.max[r] = now;
    for (int i = r; i < group; i += lanes) references[i] = reference;
  }
  // Several vectors of a group at once; see exp2.
  const auto weigh_vectors = [&]<int some>() {
    T* scores = args.scores;
    for (int i = 0; i < group; i += some * L) {
      Vec<T> reference[some], sum[some], entropy[some];
      for (int v = 0; v < some; ++v) {
        reference[v] = hn::Load(d, references + i + v * L);
        sum[v] = entropy[v] = hn::Zero(d);
      }
      for (int at = i; at < padded; at += group) {
        Vec<T> weight[some], logarithm[some];
        for (int v = 0; v < some; ++v) {
          const auto score = hn::Sub(hn::Load(d, scores + at + v * L), reference[v]);
          weight[v] = logarithm[v] = bounded_for_exp2<Reach::weights>(d, score);
        }
        exp2_of_bounded<Reach::weights>(d, weight);
        for (int v = 0; v < some; ++v) {
          sum[v] = hn::Add(sum[v], weight[v]);
          if constexpr (with_entropy) entropy[v] = hn::MulAdd(weight[v], logarithm[v], entropy[v]);
          hn::Store(weight[v], d, scores + at + v * L);
        }
      }
      for (int v = 0; v < some; ++v) {
        hn::Store(sum[v], d, partial + i + v * L);
        if constexpr (with_entropy) hn::Store(entropy[v], d, entropies + i + v * L);
      }
    }
  };
  // A group is 1, 2, 4 or more vectors.
  if (group >= 4 * L) {
    weigh_vectors.template operator()<4>();
  } else if (group == 2 * L) {
    weigh_vectors.template operator()<2>();
  } else {
    weigh_vectors.template operator()<1>();
  }
  for (int r = 0; r < lanes; ++r) {
    args.sum[r] = args.sum[r] * args.rescale[r] + folded(partial, lanes, r);
    if constexpr (with_entropy) args.entropy[r] += folded(entropies, lanes, r);
  }
}

template <class T>
void weigh(const WeighArgs<T>& args) {
  args.entropy != nullptr ? weigh_rows<true>(args) : weigh_rows<false>(args);
}

// Adds the values of `keys` keys, stream_keys apart from key j on, to the sums of some rows, which stay in the
// first-level cache.
template <int keys, int constant_width, class T, class Stored>
HWY_INLINE void pool_keys(const PoolArgs<T>& args, int first_row, int last_row, int j) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const int width = constant_width != 0 ? constant_width : args.width;
  const Stored* values[keys];
  for (int i = 0; i < keys; ++i) {
    values[i] = static_cast<const Stored*>(args.values) + (j + i * stream_keys) * args.value_stride;
  }
  for (int r = first_row; r < last_row; ++r) {
    T* sums = args.sums + r * args.sum_stride;
    Vec<T> weight[keys];
    for (int i = 0; i < keys; ++i) weight[i] = hn::Set(d, args.weights[(j + i * stream_keys) * args.lanes + r]);
    int c = 0;
    for (; c + L <= width; c += L) {
      auto sum = hn::Load(d, sums + c);
      for (int i = 0; i < keys; ++i) sum = hn::MulAdd(weight[i], load_widened<T>(values[i] + c), sum);
      hn::Store(sum, d, sums + c);
    }
    if (c < width) {
      auto sum = hn::Load(d, sums + c);
      for (int i = 0; i < keys; ++i) sum = hn::MulAdd(weight[i], load_some<T>(values[i] + c, width - c), sum);
      hn::Store(sum, d, sums + c);
    }
  }
}

template <class T, class Stored>
void pool(const PoolArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  for (int r = 0; r < args.rows; ++r) {
    T* sums = args.sums + r * args.sum_stride;
    const auto factor = args.rescale == nullptr ? hn::Zero(d) : hn::Set(d, args.rescale[r]);
    for (int c = 0; c < args.width; c += L) {
      hn::Store(args.rescale == nullptr ? hn::Zero(d) : hn::Mul(factor, hn::Load(d, sums + c)), d, sums + c);
    }
  }
  // The first row meets every value when it comes from memory, and takes them one after the other. The other rows find
  // them in the cache, and take a value of each stream at once.
  const Stored* values = static_cast<const Stored*>(args.values);
  const bool asks = is_intel();
  with_width<T>(args.width, [&](auto width) {
    for (int j = 0; j < std::min(stream_keys, args.keys); ++j) {
      const bool all_streams = j + (streams - 1) * stream_keys < args.keys;
#pragma GCC unroll 1
      for (int key = j; key < args.keys; key += stream_keys) {
        if (asks) ask_for(values + (key + rows_ahead) * args.value_stride, args.width);
        pool_keys<1, width, T, Stored>(args, 0, all_streams ? 1 : args.rows, key);
      }
      if (all_streams) pool_keys<streams, width, T, Stored>(args, 1, args.rows, j);
    }
  });
}

constexpr DecodeKernels<float> float_table = {
    lanes_of<float>,
    weigh<float>,
    {score<float, float>, score<float, hwy::float16_t>, score<float, hwy::bfloat16_t>},
    {pool<float, float>, pool<float, hwy::float16_t>, pool<float, hwy::bfloat16_t>}};
constexpr DecodeKernels<double> double_table = {lanes_of<double>,
                                                weigh<double>,
                                                {score<double, double>, nullptr, nullptr},
                                                {pool<double, double>, nullptr, nullptr}};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const DecodeKernels<float>& decode_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, float_table);
}
template <>
const DecodeKernels<double>& decode_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, double_table);
}

}  // namespace qkv::kernels
#endif
