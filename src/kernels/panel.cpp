// kernels/panel.cpp: score, weigh and pool for panels of queries.
//
// Scores are computed transposed, K * Q^T: keys are broadcast straight from their rows and need no packing, queries are
// transposed once per panel, and a vector holds one key's scores for neighbouring queries. The output is P * V by rows:
// weights are broadcast, values loaded as vectors straight from their rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/panel.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "kernels/block.h"
#include "kernels/isa.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// The shapes of tiles, per instruction set: with 32 registers a tall tile one vector wide is best, with 16 registers a
// wider one. Shares of peak of the alternatives are in docs/performance.md, "Tiles".
#if HWY_TARGET == HWY_AVX3
inline constexpr int max_vectors = 1;
inline constexpr int block_keys = 256;
inline constexpr int pool_rows = 4;
template <int vectors>
inline constexpr int score_keys = 8;
#else
inline constexpr int max_vectors = 3;
inline constexpr int block_keys = 192;
inline constexpr int pool_rows = 6;
template <int vectors>
inline constexpr int score_keys = vectors == 3 ? 4 : vectors == 2 ? 6 : 8;
#endif
inline constexpr int pool_vectors = 2;
inline constexpr int group_panels = 6;

template <int keys, int vectors, bool with_max, class T>
HWY_INLINE void score_tile(const ScoreArgs<T>& args, int j, Vec<T> (&highest)[vectors]) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  Vec<T> sum[keys][vectors];
  for (int r = 0; r < keys; ++r) {
    for (int v = 0; v < vectors; ++v) sum[r][v] = hn::Zero(d);
  }
  accumulate(static_cast<const T*>(args.keys) + j * args.key_stride, args.key_stride, 1, args.queries, vectors * L,
             args.depth, sum);
  T* scores = args.scores + j * vectors * L;
  for (int r = 0; r < keys; ++r) {
    for (int v = 0; v < vectors; ++v) {
      if constexpr (with_max) highest[v] = max_of_numbers(highest[v], sum[r][v]);
      hn::Store(sum[r][v], d, scores + (r * vectors + v) * L);
    }
  }
}

template <int vectors, bool with_max, class T>
void score_panel(const ScoreArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  constexpr int keys = score_keys<vectors>;
  Vec<T> highest[vectors];
  for (int v = 0; v < vectors; ++v) highest[v] = with_max ? hn::Load(d, args.row_max + v * L) : hn::Zero(d);
  int j = args.first;
  for (; j + keys <= args.last; j += keys) score_tile<keys, vectors, with_max>(args, j, highest);
  if constexpr (keys > 4) {
    if (j + 4 <= args.last) {
      score_tile<4, vectors, with_max>(args, j, highest);
      j += 4;
    }
  }
  for (; j + 2 <= args.last; j += 2) score_tile<2, vectors, with_max>(args, j, highest);
  if (j < args.last) score_tile<1, vectors, with_max>(args, j, highest);
  if constexpr (with_max) {
    for (int v = 0; v < vectors; ++v) hn::Store(highest[v], d, args.row_max + v * L);
  }
}

template <class T>
void score(const ScoreArgs<T>& args) {
  constexpr int L = lanes_of<T>;
  const bool with_max = args.row_max != nullptr;
  const auto run = [&]<int vectors>() {
    with_max ? score_panel<vectors, true>(args) : score_panel<vectors, false>(args);
  };
  if (args.lanes == L) return run.template operator()<1>();
  if constexpr (max_vectors > 1) {
    if (args.lanes == 2 * L) return run.template operator()<2>();
    run.template operator()<3>();
  }
}

// Two passes per block: the row maxima are known before the first 2^x. (A single pass with the maximum of earlier blocks
// was equal within noise and overflows with scores of 100 and more.)
template <int vectors, bool natural, class T>
void weigh_panel(const WeighArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const auto lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  const auto to_log2 = hn::Set(d, args.to_log2);
  const auto log2 = [&](Vec<T> score) { return natural ? hn::Mul(score, to_log2) : score; };
  Vec<T> reference[vectors], sum[vectors];
  bool large = false;
  for (int v = 0; v < vectors; ++v) {
    const auto before = hn::Load(d, args.reference + v * L);
    const auto now = max_of_numbers(before, hn::Ceil(log2(hn::Load(d, args.row_max + v * L))));
    // A row that has seen nothing yet has no maximum: its scores are all -inf, and any reference gives 0.
    reference[v] = hn::IfThenElse(hn::Eq(now, lowest), hn::Zero(d), now);
    large |= !hn::AllTrue(d, hn::Le(hn::Abs(reference[v]), hn::Set(d, Exp2<Tag<T>>::max_reference)));
    hn::Store(now, d, args.reference + v * L);
    hn::Store(exp2(d, hn::Sub(before, reference[v])), d, args.rescale + v * L);
    sum[v] = hn::Zero(d);
  }
  if (HWY_UNLIKELY(large)) {
    // Rare: scores beyond a million have no fraction worth keeping, and the subtraction comes first.
    for (int j = 0; j < args.keys; ++j) {
      for (int v = 0; v < vectors; ++v) {
        T* at = args.scores + (j * vectors + v) * L;
        hn::Store(hn::Sub(log2(hn::Load(d, at)), reference[v]), d, at);
      }
    }
    for (int v = 0; v < vectors; ++v) reference[v] = hn::Zero(d);
  }
  const auto weigh_rows = [&](auto from) {
    const auto exponentials = [&]<std::size_t... v>(std::index_sequence<v...>) {
      return std::array<Exp2<Tag<T>>, vectors>{Exp2<Tag<T>>(d, reference[v])...};
    }(std::make_index_sequence<vectors>());
    for (int j = 0; j < args.keys; ++j) {
      for (int v = 0; v < vectors; ++v) {
        T* at = args.scores + (j * vectors + v) * L;
        const auto weight = exponentials[static_cast<std::size_t>(v)](d, from(hn::Load(d, at)));
        sum[v] = hn::Add(sum[v], weight);
        hn::Store(weight, d, at);
      }
    }
  };
  if (HWY_UNLIKELY(large)) {
    weigh_rows([](Vec<T> score) { return score; });
  } else {
    weigh_rows(log2);
  }
  for (int v = 0; v < vectors; ++v) {
    const auto before = hn::Mul(hn::Load(d, args.sum + v * L), hn::Load(d, args.rescale + v * L));
    hn::Store(hn::Add(before, sum[v]), d, args.sum + v * L);
  }
}

template <class T>
void weigh(const WeighArgs<T>& args) {
  constexpr int L = lanes_of<T>;
  const auto run = [&]<int vectors>() {
    args.to_log2 == T(1) ? weigh_panel<vectors, false>(args) : weigh_panel<vectors, true>(args);
  };
  if (args.lanes == L) return run.template operator()<1>();
  if constexpr (max_vectors > 1) {
    if (args.lanes == 2 * L) return run.template operator()<2>();
    run.template operator()<3>();
  }
}

template <int rows, int vectors, class T>
HWY_INLINE void pool_tile(const PoolArgs<T>& args, int r, int column) {
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
  T* sums = args.sums + r * args.sum_stride + column;
  Vec<T> sum[rows][vectors];
  for (int i = 0; i < rows; ++i) {
    if (args.rescale == nullptr) {
      for (int v = 0; v < vectors; ++v) sum[i][v] = hn::Zero(d);
    } else {
      const auto factor = hn::Set(d, args.rescale[r + i]);
      for (int v = 0; v < vectors; ++v) sum[i][v] = hn::Mul(factor, hn::Load(d, sums + i * args.sum_stride + v * L));
    }
  }
  accumulate(args.weights + first * args.lanes + r, 1, args.lanes,
             static_cast<const T*>(args.values) + first * args.value_stride + column, args.value_stride, last - first,
             sum);
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) hn::Store(sum[i][v], d, sums + i * args.sum_stride + v * L);
  }
}

template <int vectors, class T>
HWY_INLINE void pool_columns(const PoolArgs<T>& args, int column) {
  int r = 0;
  for (; r + pool_rows <= args.rows; r += pool_rows) pool_tile<pool_rows, vectors>(args, r, column);
  if constexpr (pool_rows > 4) {
    for (; r + 4 <= args.rows; r += 4) pool_tile<4, vectors>(args, r, column);
  }
  for (; r + 2 <= args.rows; r += 2) pool_tile<2, vectors>(args, r, column);
  if (r < args.rows) pool_tile<1, vectors>(args, r, column);
}

template <class T>
void pool(const PoolArgs<T>& args) {
  constexpr int L = lanes_of<T>;
  int column = 0;
  for (; column + pool_vectors * L <= args.width; column += pool_vectors * L) pool_columns<pool_vectors>(args, column);
  if (column < args.width) pool_columns<1>(args, column);
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
  int c = 0;
  for (; c + 4 <= args.columns; c += 4) {
    Vec<float> in[4];
    for (int i = 0; i < 4; ++i) {
      in[i] = hn::Mul(load_parts(d, args.source + (r + i) * args.stride + c, 4 * args.stride), scale);
    }
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, in[0], in[1]));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, in[2], in[3]));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, in[0], in[1]));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, in[2], in[3]));
    float* to = args.target + c * args.lanes + r;
    hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, to);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, to + args.lanes);
    hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, to + 2 * args.lanes);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, to + 3 * args.lanes);
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
constexpr PanelKernels<T> panel_table = {lanes_of<T>,  max_vectors, block_keys, group_panels,
                                         transpose<T>, score<T>,    weigh<T>,   pool<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const PanelKernels<float>& panel_kernels() {
  return QKV_PICK(panel_table<float>);
}
template <>
const PanelKernels<double>& panel_kernels() {
  return QKV_PICK(panel_table<double>);
}

}  // namespace qkv::kernels
#endif
