// kernels/panel.cpp: score, weigh and pool for panels of queries.
//
// Scores are computed transposed, K * Q^T: keys are broadcast straight from their rows and need no packing, queries are
// transposed once per panel, and a vector holds one key's scores for neighbouring queries. The output is P * V by rows:
// weights are broadcast, values loaded as vectors. Values are copied, once for a group of panels, into strips two
// vectors wide, of which a tile takes one or two: straight from their rows, whose distance is a power of two as a rule,
// they fall on a few sets of the first-level cache and throw each other out (88 % of peak for the product on Zen 3
// instead of 97 %).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/panel.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/block.h"
#include "kernels/isa.h"
#include "kernels/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// What happens to a score before it raises the maximum and is stored.
enum class Then { nothing, add, exclude, add_or_exclude };

// Spreads the bits of a tile's keys over lanes: signs[r * lanes + i] has that of key r and row i as its sign.
template <int keys, int vectors, class T>
HWY_INLINE void spread_bits(const RowBits* bits, T* signs) {
  const Tag<T> d;
  const hn::RebindToUnsigned<Tag<T>> words;
  constexpr int L = lanes_of<T>;
  using Word = hwy::MakeUnsigned<T>;
  for (int v = 0; v < vectors; ++v) {
    const auto to_sign = hn::Sub(hn::Set(words, static_cast<Word>(8 * sizeof(T) - 1)), hn::Iota(words, 0));
    for (int r = 0; r < keys; ++r) {
      auto sign = hn::Shl(hn::Set(words, static_cast<Word>(bits[r] >> (v * L))), to_sign);
#if HWY_TARGET != HWY_AVX2 && HWY_TARGET != HWY_AVX3
      // Without vectors of their own, targets take for negative what is below 0, which -0 is not.
      sign = hn::BitCast(words, hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<Tag<T>>(), sign)));
      sign = hn::And(sign, hn::BitCast(words, hn::Set(d, T(-1))));
#endif
      hn::Store(hn::BitCast(d, sign), d, signs + (r * vectors + v) * L);
    }
  }
  // They stay there: in registers they would take the place of sums.
  asm volatile("" : : : "memory");
}

template <int keys, int vectors, Then then, class T>
HWY_INLINE void score_tile(const ScoreArgs<T>& args, int j, T* signs, Vec<T> (&highest)[vectors]) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  // A constant for whole panels.
  const int lanes = vectors == max_vectors<T> ? vectors * L : args.panel_lanes;
  // Before the sums, which this does not wait for, nor they for it.
  if constexpr (then == Then::exclude) spread_bits<keys, vectors>(args.excluded + j, signs);
  Vec<T> sum[keys][vectors];
  for (int r = 0; r < keys; ++r) {
    for (int v = 0; v < vectors; ++v) sum[r][v] = hn::Zero(d);
  }
  accumulate(static_cast<const T*>(args.keys) + j * args.key_stride, args.key_stride, 1, args.queries, lanes,
             args.depth, sum);
#pragma GCC unroll 16  // all, so that the sums stay in registers
  for (int r = 0; r < keys; ++r) {
    for (int v = 0; v < vectors; ++v) {
      const int at = (j + r) * lanes + v * L;
      if constexpr (then == Then::add) sum[r][v] = hn::Add(sum[r][v], hn::Load(d, args.added + at));
      if constexpr (then == Then::exclude) {
        const auto excluded = hn::Set(d, -std::numeric_limits<T>::infinity());
        sum[r][v] = hn::IfNegativeThenElse(hn::Load(d, signs + (r * vectors + v) * L), excluded, sum[r][v]);
      }
      if constexpr (then == Then::add_or_exclude) {
        sum[r][v] = add_or_exclude(sum[r][v], hn::Load(d, args.added + at));
      }
      highest[v] = max_of_numbers(highest[v], sum[r][v]);
      hn::Store(sum[r][v], d, args.scores + at);
    }
  }
}

// One tile's lines; a function for the size of the code.
HWY_NOINLINE void ask_for(Ahead& ahead) {
  for (int i = 0; i < ahead.lines; ++i) {
    for (int s = 0; s < ahead.count; ++s) {
      auto& [at, step] = ahead.streams[s];
      __builtin_prefetch(reinterpret_cast<const void*>(at), 0, 2);
      at += static_cast<std::uintptr_t>(step);
    }
  }
}

template <int vectors, Then then, class T>
void score_panel(const ScoreArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  Vec<T> highest[vectors];
  for (int v = 0; v < vectors; ++v) highest[v] = hn::Load(d, args.row_max + v * L);
  constexpr bool every_height = hot<T> && then == Then::nothing && HWY_TARGET == HWY_AVX2;
  HWY_ALIGN T signs[then == Then::exclude ? score_keys<T, vectors> * vectors * L : 1];
  Ahead* ahead = args.ahead;
  for_each_score_tile<T, vectors, every_height>(args.first, args.last, [&]<int keys>(int j) {
    if (ahead != nullptr) ask_for(*ahead);
    if constexpr (then == Then::add || then == Then::add_or_exclude) {
      const T* next = args.added + (j + keys) * vectors * L;
      for (int i = 0; i < keys * vectors && args.added_is_far; ++i) __builtin_prefetch(next + i * L);
    }
    score_tile<keys, vectors, then>(args, j, signs, highest);
  });
  for (int v = 0; v < vectors; ++v) hn::Store(highest[v], d, args.row_max + v * L);
}

template <class T>
void score(const ScoreArgs<T>& given) {
  ScoreArgs<T> args = given;
  if (args.panel_lanes == 0) args.panel_lanes = args.lanes;
  with_vectors<T>(args.lanes, [&]<int vectors>() {
    if (args.excluded != nullptr) return score_panel<vectors, Then::exclude>(args);
    if (args.added != nullptr) {
      if constexpr (hot<T>) {
        if (args.added_is_finite) return score_panel<vectors, Then::add>(args);
      }
      return score_panel<vectors, Then::add_or_exclude>(args);
    }
    if (args.row_max != nullptr) return score_panel<vectors, Then::nothing>(args);
    // A maximum that nobody wants costs less than code without.
    HWY_ALIGN T unwanted[static_cast<std::size_t>(vectors * lanes_of<T>)] = {};
    args.row_max = unwanted;
    score_panel<vectors, Then::nothing>(args);
  });
}

// Adds the vectors of several keys to `sum`, in pairs first: the chain of additions to one sum would be longer than all
// the rest.
template <int all, int vectors, class V>
HWY_INLINE void add_keys(V (&of_keys)[all], V (&sum)[vectors]) {
  for (int half = all / vectors / 2; half > 0; half /= 2) {
    for (int i = 0; i < half * vectors; ++i) of_keys[i] = hn::Add(of_keys[i], of_keys[i + half * vectors]);
  }
  for (int v = 0; v < vectors; ++v) sum[v] = hn::Add(sum[v], of_keys[v]);
}

// Two passes per block: the row maxima are known before the first 2^x. (A single pass with the maximum of earlier
// blocks was equal within noise and overflows with scores of 100 and more.)
//
// Here and below, what loops need of the arguments is copied first: for all the compiler knows, storing a vector might
// change them.
//
// The entropy's sum (see WeighArgs) takes the scores, less the maximum, as exp2 bounds them: where a weight is 0 they
// are finite, and the product is 0. When the maximum moves, every earlier logarithm moves by as much.
template <int vectors, bool with_entropy, class T>
void weigh_panel(const WeighArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  // Keys, so that four vectors or more go together; fewer, for the size of the code, where there are no vectors.
  constexpr int at_once = vectors == 3 || HWY_TARGET == HWY_SCALAR ? 2 : 4 / vectors;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  Vec<T> reference[vectors], sum[vectors], entropy[vectors];
  for (int v = 0; v < vectors; ++v) {
    const auto before = hn::Load(d, args.max + v * L);
    const auto now = max_of_numbers(before, hn::Load(d, args.row_max + v * L));
    // A row that has seen nothing yet has no maximum to subtract: its scores are all -inf, and -inf - 0 is what gives
    // 0.
    reference[v] = hn::IfThenElse(hn::Eq(now, lowest), hn::Zero(d), now);
    hn::Store(now, d, args.max + v * L);
    const auto moved = hn::Sub(before, reference[v]);
    hn::Store(exp2<Reach::weights>(d, moved), d, args.rescale + v * L);
    sum[v] = entropy[v] = hn::Zero(d);
    if constexpr (with_entropy) {
      const auto moved_logarithms = hn::MulAdd(
          hn::Load(d, args.sum + v * L), bounded_for_exp2<Reach::weights>(d, moved), hn::Load(d, args.entropy + v * L));
      hn::Store(hn::Mul(moved_logarithms, hn::Load(d, args.rescale + v * L)), d, args.entropy + v * L);
    }
  }
  const auto weigh_keys = [&]<int some>(T* at) {
    Vec<T> x[some * vectors], logarithm[some * vectors];
    for (int i = 0; i < some * vectors; ++i) x[i] = hn::Sub(hn::Load(d, at + i * L), reference[i % vectors]);
    if constexpr (with_entropy) {
      for (int i = 0; i < some * vectors; ++i) x[i] = logarithm[i] = bounded_for_exp2<Reach::weights>(d, x[i]);
      exp2_of_bounded<Reach::weights>(d, x);
    } else {
      exp2<Reach::weights>(d, x);
    }
    for (int i = 0; i < some * vectors; ++i) hn::Store(x[i], d, at + i * L);
    if constexpr (with_entropy) {
      for (int i = 0; i < some * vectors; ++i) logarithm[i] = hn::Mul(logarithm[i], x[i]);
      add_keys(logarithm, entropy);
    }
    add_keys(x, sum);
  };
  T* scores = args.scores;
  const int keys = args.keys;
  int j = 0;
  for (; j + at_once <= keys; j += at_once) weigh_keys.template operator()<at_once>(scores + j * vectors * L);
  for (; j < keys; ++j) weigh_keys.template operator()<1>(scores + j * vectors * L);
  for (int v = 0; v < vectors; ++v) {
    const auto before = hn::Mul(hn::Load(d, args.sum + v * L), hn::Load(d, args.rescale + v * L));
    hn::Store(hn::Add(before, sum[v]), d, args.sum + v * L);
    if constexpr (with_entropy) {
      hn::Store(hn::Add(hn::Load(d, args.entropy + v * L), entropy[v]), d, args.entropy + v * L);
    }
  }
}

template <class T>
void weigh(const WeighArgs<T>& args) {
  with_vectors<T>(args.lanes, [&]<int vectors>() {
    args.entropy != nullptr ? weigh_panel<vectors, true>(args) : weigh_panel<vectors, false>(args);
  });
}

// Step is the type of args.value_stride, or that of a constant.
template <int rows, int vectors, class T, class Step>
HWY_INLINE void pool_tile(const PoolArgs<T>& args, Step value_step, int r, int column, std::ptrdiff_t strip_offset) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  int first = 0, last = args.keys;
  if (args.begins != nullptr) {
    T begin = args.begins[r], end = args.ends[r];
    for (int i = 1; i < rows; ++i) {
      begin = std::min(begin, args.begins[r + i]);
      end = std::max(end, args.ends[r + i]);
    }
    first = std::max(first, static_cast<int>(begin));
    last = std::max(first, std::min(last, static_cast<int>(end)));
  }
  Vec<T> sum[rows][vectors];
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) sum[i][v] = hn::Zero(d);
  }
  accumulate<rows>(args.weights + first * args.lanes + r, 1, args.lanes,
                   static_cast<const T*>(args.values) + strip_offset + first * value_step, value_step, last - first,
                   sum, args.strip_stride);
  // Earlier blocks' sums come last: nothing waits for them, and a sum of sums rounds less than one long sum.
  if (args.rescale != nullptr) {
    const T* sums = args.sums + r * args.sum_stride + column;
    for (int i = 0; i < rows; ++i) {
      const auto factor = hn::Set(d, args.rescale[r + i]);
      for (int v = 0; v < vectors; ++v) {
        sum[i][v] = hn::MulAdd(factor, hn::Load(d, sums + i * args.sum_stride + v * L), sum[i][v]);
      }
    }
  }
  T* out = args.out + r * args.out_stride + column;
  for (int i = 0; i < rows; ++i) {
    const auto factor = hn::Set(d, args.factors[r + i]);
    for (int v = 0; v < vectors; ++v) hn::StoreU(hn::Mul(factor, sum[i][v]), d, out + i * args.out_stride + v * L);
  }
}

template <int vectors, class T, class Step>
HWY_INLINE void pool_columns(const PoolArgs<T>& args, Step value_step, int column, std::ptrdiff_t strip_offset) {
  constexpr int rows = pool_rows<T, vectors>;
  int r = 0;
  for (; r + rows <= args.rows; r += rows) {
    pool_tile<rows, vectors>(args, value_step, r, column, strip_offset);
  }
  if constexpr (4 < rows) {
    for (; r + 4 <= args.rows; r += 4) pool_tile<4, vectors>(args, value_step, r, column, strip_offset);
  }
  if constexpr (2 < rows) {
    for (; r + 2 <= args.rows; r += 2) pool_tile<2, vectors>(args, value_step, r, column, strip_offset);
  }
  if (r < args.rows) pool_tile<1, vectors>(args, value_step, r, column, strip_offset);
}

template <class T, class Step>
void pool_values(const PoolArgs<T>& args, Step value_step) {
  for_each_strip<T, true>(args.width, args.strip_stride, [&]<int vectors>(int column, std::ptrdiff_t strip_offset) {
    pool_columns<vectors>(args, value_step, column, strip_offset);
  });
}

// Values in strips are the rule, and their distance as a constant is worth half a point of the peak with AVX2.
template <class T>
void pool(const PoolArgs<T>& args) {
  if constexpr (hot<T> && HWY_TARGET == HWY_AVX2) {
    constexpr std::integral_constant<std::ptrdiff_t, strip_width<T>> in_strips;
    if (args.value_stride == in_strips) return pool_values(args, in_strips);
  }
  pool_values(args, args.value_stride);
}

template <class T>
bool spread(const SpreadArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const auto [source, stride, rows, width, target, strip_stride] = args;
  // x - x is 0 for finite x, and NaN for the others.
  auto differences = hn::Zero(d);
  T difference = 0;
  for (int r = 0; r < rows; ++r) {
    const T* row = source + r * stride;
    T* to = target + r * strip_width<T>;
    int column = 0;
    for (; column + strip_width<T> <= width; column += strip_width<T>, to += strip_stride) {
      for (int v = 0; v < strip_vectors; ++v) {
        const auto values = hn::LoadU(d, row + column + v * L);
        differences = hn::Or(differences, hn::Sub(values, values));
        hn::Store(values, d, to + v * L);
      }
    }
    if (column < width) {
      for (int c = 0; c < strip_width<T>; ++c) {
        to[c] = column + c < width ? row[column + c] : T(0);
        difference += to[c] - to[c];
      }
    }
  }
  return difference == T(0) && hn::AllTrue(d, hn::Eq(differences, hn::Zero(d)));
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// A vector whose 128-bit parts come from different rows.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V load_parts(D d, const float* at, std::ptrdiff_t distance) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::LoadU(d, at);
  } else {
    const hn::Half<D> half;
    const auto upper = at + distance * static_cast<std::ptrdiff_t>(hn::MaxLanes(half) / 4);
    return hn::Combine(d, load_parts(half, upper, distance), load_parts(half, at, distance));
  }
}

// L rows, L the vector's length, four columns at a time, four rows inside each 128-bit part of a vector.
// Returns the number of columns done.
HWY_INLINE int transpose_vector(const TransposeArgs<float>& args, int r) {
  const Tag<float> d;
  const hn::Repartition<std::uint64_t, Tag<float>> d64;
  const auto scale = hn::Set(d, args.scale);
  const std::ptrdiff_t stride = args.stride, lanes = args.lanes;
  const int columns = args.columns;
  const float* from = args.source + r * stride;
  float* to = args.target + r;
  int c = 0;
  for (; c + 4 <= columns; c += 4, from += 4, to += 4 * lanes) {
    Vec<float> in[4];
    for (int i = 0; i < 4; ++i) in[i] = hn::Mul(load_parts(d, from + i * stride, 4 * stride), scale);
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, in[0], in[1]));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, in[2], in[3]));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, in[0], in[1]));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, in[2], in[3]));
    hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, to);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, to + lanes);
    hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, to + 2 * lanes);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, to + 3 * lanes);
  }
  return c;
}
#endif

// By vectors for whole vectors of floats; one by one for the rest and for double, which is not hot.
template <class T>
void transpose(const TransposeArgs<T>& args) {
  for (int r = 0; r < args.lanes; r += lanes_of<T>) {
    const int end = r + lanes_of<T>;
    int c = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<T, float>) {
      if (end <= args.rows) c = transpose_vector(args, r);
    }
#endif
    for (; c < args.columns; ++c) {
      for (int i = r; i < end; ++i) {
        args.target[c * args.lanes + i] = i < args.rows ? args.source[i * args.stride + c] * args.scale : T(0);
      }
    }
  }
}

template <class T>
constexpr PanelKernels<T> panel_table = {
    lanes_of<T>,  max_vectors<T>, block_keys, group_panels, strip_width<T>, score_keys<T, max_vectors<T>>,
    transpose<T>, spread<T>,      score<T>,   weigh<T>,     pool<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const PanelKernels<float>& panel_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, panel_table<float>);
}
template <>
const PanelKernels<double>& panel_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, panel_table<double>);
}

}  // namespace qkv::kernels
#endif
