// kernels/decode.cpp: few queries, many keys: every key and value is read once, in order, from memory.
//
// Bound by memory; how it is read best differs between processors (`Reading`). Row r's result does not depend on how
// many rows share the pass: dot products always use the same partial sums, weights are summed by key modulo 16, values
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

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

constexpr int four = decode_streams;  // keys and values are taken by fours, in every order

// Calls run(first, count) for runs of keys `apart` from each other which together are all keys first <= j < last, in
// the order in which they are best read.
template <class Run>
HWY_INLINE void for_each_run(int apart, int longest, int first, int last, Run run) {
  const bool one_stream = apart == 1;
  const int end = one_stream ? last : std::min(first + apart, last);
  for (int j = first; j < end; j += one_stream ? longest : 1) {
    run(j, one_stream ? std::min(longest, last - j) : (last - j + apart - 1) / apart);
  }
}

// `width` is a constant, or 0.
template <int width, class Stored>
HWY_INLINE void ask_for(const Stored* row, int columns) {
  constexpr int line = 64 / static_cast<int>(sizeof(Stored));
  if constexpr (width != 0) {
#pragma GCC unroll 8
    for (int c = 0; c < width; c += line) __builtin_prefetch(row + c);  // a hint: it may point anywhere
  } else {
    for (int c = 0; c < columns; c += line) __builtin_prefetch(row + c);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Adds up what lies four elements apart.
template <class D, class V>
HWY_INLINE void store_sum_of_fours(D d, V sum, hn::TFromD<D>* HWY_RESTRICT to) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::StoreU(sum, d, to);
  } else {
    const hn::Half<D> half;
    store_sum_of_fours(half, hn::Add(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum)), to);
  }
}
#endif

// The sums of four vectors' elements: twice as fast as one vector after the other.
template <class T>
HWY_INLINE void add_up_vectors(const T* HWY_RESTRICT vectors, T* HWY_RESTRICT sums) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, float>) {
    const hn::RepartitionToWide<Tag<T>> pairs;
    const auto join = [&](const T* two) {  // of every 16 bytes: a0 + a2, b0 + b2, a1 + a3, b1 + b3
      const auto a = hn::Load(d, two), b = hn::Load(d, two + L);
      return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
    };
    const auto ab = join(vectors), cd = join(vectors + 2 * L);
    store_sum_of_fours(
        d,
        hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, cd)), hn::BitCast(d, hn::InterleaveUpper(pairs, ab, cd))),
        sums);
    return;
  }
#endif
  for (int i = 0; i < four; ++i) sums[i] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, vectors + i * L)));
}

// Loops over the widths of most heads are unrolled. All others are `width` 0, and so are all widths where nobody is in
// a hurry: in double, and without vectors.
template <class T>
constexpr bool has_widths = std::is_same_v<T, float>&& HWY_TARGET != HWY_SCALAR;
template <class Function>
Function of_width(int width, Function any, Function of_64, Function of_128) {
  return width == 64 ? of_64 : width == 128 ? of_128 : any;
}

// How many vectors of one row stay in registers while keys or values go by; 0 if they would not fit.
template <int width, class T>
constexpr int held = width / lanes_of<T> <= 8 ? width / lanes_of<T> : 0;

// The dot products of one key with `rows` queries, each a vector whose elements have yet to be added up. query(r, c) is
// what begins at element c of query r.
template <int rows, class T, class Stored, class Query>
HWY_INLINE void multiply_key(const Stored* HWY_RESTRICT key, const Query& query, int depth, T* HWY_RESTRICT vectors) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  Vec<T> even[rows], odd[rows];
  for (int r = 0; r < rows; ++r) even[r] = odd[r] = hn::Zero(d);
  const auto add = [&](Vec<T>(&sum)[rows], Vec<T> part, int c) {
    for (int r = 0; r < rows; ++r) sum[r] = hn::MulAdd(part, query(r, c), sum[r]);
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
  for (int r = 0; r < rows; ++r) hn::Store(hn::Add(even[r], odd[r]), d, vectors + r * L);
}

// A function of its own, as pool_run below: among the rest of a block's work g++ keeps addresses in vector registers,
// and an address from there waits behind the arithmetic that waits for memory (30 GB/s instead of 43).
template <int lanes, int width, class T, class Stored>
HWY_NOINLINE void score_run(const ScoreArgs<T>& args, int apart, int ahead, int first, int count) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  constexpr int at_once = std::min(lanes, four);  // rows; more would not fit the registers
  constexpr int together = four / at_once;        // keys whose products are added up together
  const int depth = width != 0 ? width : args.depth;
  const T* queries = args.queries;
  const std::ptrdiff_t query_stride = (depth + L - 1) / L * L;
  Vec<T> query[lanes == 1 ? held<width, T> + 1 : 1];
  for (int v = 0; v < held<width, T> && lanes == 1; ++v) query[v] = hn::Load(d, queries + v * L);
  const auto query_at = [&](int r, int c) {
    if constexpr (lanes == 1 && held<width, T> != 0) return query[c / L];
    return hn::Load(d, queries + r * query_stride + c);
  };
  const Stored* key = static_cast<const Stored*>(args.keys) + first * args.key_stride;
  const std::ptrdiff_t step = apart * args.key_stride, hint = ahead * args.key_stride;
  T* scores = args.scores + first * lanes;
  const int score_step = apart * lanes;
  HWY_ALIGN T vectors[together * lanes * L] = {};
  HWY_ALIGN T sums[together * lanes];
  while (count > 0) {
    const int now = std::min(count, together);
    count -= now;
    T* to = vectors;
    // Rolled on purpose: unrolled, the compiler mixes the loads of several keys and the bandwidth halves.
#pragma GCC unroll 1
    for (int k = 0; k < now; ++k) {
      if (hint != 0) ask_for<width>(key + hint, depth);
      for (int r = 0; r < lanes; r += at_once) {
        multiply_key<at_once>(
            key, [&](int row, int c) { return query_at(r + row, c); }, depth, to);
        to += at_once * L;
      }
      key += step;
    }
    for (int i = 0; i < together * lanes; i += four) add_up_vectors(vectors + i * L, sums + i);
    for (int k = 0; k < now; ++k) {
      for (int r = 0; r < lanes; ++r) scores[r] = sums[k * lanes + r];
      scores += score_step;
    }
  }
}

template <int lanes, class T, class Stored>
auto score_run_of(int depth) {
  constexpr bool has = has_widths<T> && (lanes == 1 || lanes == 4);  // the other numbers of rows are rare
  constexpr int w64 = has ? 64 : 0, w128 = has ? 128 : 0;
  return of_width(depth, score_run<lanes, 0, T, Stored>, score_run<lanes, w64, T, Stored>,
                  score_run<lanes, w128, T, Stored>);
}

template <class T, class Stored>
void score(const ScoreArgs<T>& args) {
  const Reading reading = args.reading;
  const auto run = args.lanes == 1   ? score_run_of<1, T, Stored>(args.depth)
                   : args.lanes == 2 ? score_run_of<2, T, Stored>(args.depth)
                   : args.lanes == 4 ? score_run_of<4, T, Stored>(args.depth)
                                     : score_run_of<8, T, Stored>(args.depth);
  for_each_run(reading.apart, decode_keys, args.first, args.last,
               [&](int first, int count) { run(args, reading.apart, reading.ahead, first, count); });
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
  // A group is 1, 2, 4 or more vectors, at least `least`; one by one where there are none and nobody is in a hurry.
  constexpr int least = decode_pad / L;
  if constexpr (HWY_TARGET == HWY_SCALAR) {
    weigh_vectors.template operator()<1>();
  } else if constexpr (least >= 4) {
    weigh_vectors.template operator()<4>();
  } else if (group >= 4 * L) {
    weigh_vectors.template operator()<4>();
  } else if (least >= 2 || group == 2 * L) {
    weigh_vectors.template operator()<2>();
  } else if constexpr (least < 2) {
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

// Adds the values of `keys` keys, so many apart from key j on, to the sums of some rows, which stay in the first-level
// cache.
template <int keys, int constant_width, class T, class Stored>
HWY_INLINE void pool_keys(const PoolArgs<T>& args, int first_row, int last_row, int j, int apart) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const int width = constant_width != 0 ? constant_width : args.width;
  const Stored* values[keys];
  for (int i = 0; i < keys; ++i) {
    values[i] = static_cast<const Stored*>(args.values) + (j + i * apart) * args.value_stride;
  }
  for (int r = first_row; r < last_row; ++r) {
    T* sums = args.sums + r * args.sum_stride;
    Vec<T> weight[keys];
    for (int i = 0; i < keys; ++i) weight[i] = hn::Set(d, args.weights[(j + i * apart) * args.lanes + r]);
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

// Adds values of keys that are `apart` to the sums of the first row.
template <int width, class T, class Stored>
HWY_NOINLINE void pool_run(const PoolArgs<T>& args, int apart, int ahead, int first, int count) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>, in_registers = held<width, T>;
  Vec<T> sums[in_registers + 1];
  for (int v = 0; v < in_registers; ++v) sums[v] = hn::Load(d, args.sums + v * L);
  const Stored* value = static_cast<const Stored*>(args.values) + first * args.value_stride;
  const std::ptrdiff_t step = apart * args.value_stride, hint = ahead * args.value_stride;
  const T* weight = args.weights + first * args.lanes;
  const int weight_step = apart * args.lanes;
#pragma GCC unroll 1
  for (int i = 0; i < count; ++i) {
    if (hint != 0) ask_for<width>(value + hint, args.width);
    if constexpr (in_registers != 0) {
      const auto factor = hn::Set(d, *weight);
      for (int v = 0; v < in_registers; ++v) sums[v] = hn::MulAdd(factor, load_widened<T>(value + v * L), sums[v]);
      value += step;
      weight += weight_step;
    } else {
      pool_keys<1, width, T, Stored>(args, 0, 1, first + i * apart, 0);
      value += step;
    }
  }
  for (int v = 0; v < in_registers; ++v) hn::Store(sums[v], d, args.sums + v * L);
}

// The same for the other rows.
template <int keys, int width, class T, class Stored>
HWY_NOINLINE void pool_others(const PoolArgs<T>& args, int first, int apart) {
  pool_keys<keys, width, T, Stored>(args, 1, args.rows, first, apart);
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
  const Reading reading = args.reading;
  constexpr int w64 = has_widths<T> ? 64 : 0, w128 = has_widths<T> ? 128 : 0;
  const auto run = of_width(args.width, pool_run<0, T, Stored>, pool_run<w64, T, Stored>, pool_run<w128, T, Stored>);
  const auto four_keys = of_width(args.width, pool_others<four, 0, T, Stored>, pool_others<four, w64, T, Stored>,
                                  pool_others<four, w128, T, Stored>);
  // The first row meets every value when it comes from memory, and takes them one after the other. The other rows find
  // them in the cache, and take four at once.
  const int longest = args.rows == 1 ? decode_keys : four;
  for_each_run(reading.apart, longest, 0, args.keys, [&](int first, int count) {
    run(args, reading.apart, reading.ahead, first, count);
    if (args.rows == 1) return;
    if (count == four) return four_keys(args, first, reading.apart);
    for (int i = 0; i < count; ++i) pool_others<1, 0, T, Stored>(args, first + i * reading.apart, 0);
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
