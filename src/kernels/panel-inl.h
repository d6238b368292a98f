// kernels/panel-inl.h: the shapes of the tiles that panels of queries are computed in, forward and backward.
#if defined(QKV_KERNELS_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PANEL_INL_H_
#undef QKV_KERNELS_PANEL_INL_H_
#else
#define QKV_KERNELS_PANEL_INL_H_
#endif

#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// The shapes of tiles, per instruction set.
//
// AVX-512: tiles of scores are three vectors wide, those of pooled values four. A tile loads rows + vectors operands
// for rows * vectors multiply-adds, and not every processor with two multiply-adds of whole vectors a cycle loads two
// as well: share of peak of a tile alone on Ice Lake, which loads nine vectors in eight cycles: 8 by 3 and 6 by 4 100
// %, 12 by 2 94, 8 by 2 88. (Emerald Rapids has 95 with 12 by 2 and 83 with 8 by 1; Zen 4, with half as many
// multiply-adds, the same with one vector and with two, within 2 points; PERFORMANCE.md.) AVX2, with 16 registers: 6
// keys by 2 vectors (Zen 3, score alone, D = 64: 96 %; 4 by 3 had 93).
#if HWY_TARGET == HWY_AVX3
template <class T>
inline constexpr int max_vectors = hot<T> ? 3 : 2;  // of a panel
template <class T>
inline constexpr int pool_strips = hot<T> ? 2 : 1;  // of values that go together
inline constexpr int group_panels = 11;             // at 1024 queries, two groups
inline constexpr int small_tile = 4;
template <int vectors>
inline constexpr int hot_keys = 8;
template <int vectors>
inline constexpr int hot_rows = vectors == 4   ? 6
                                : vectors == 3 ? 8
                                               : 12;
#else
template <class T>
inline constexpr int max_vectors = 2;
template <class T>
inline constexpr int pool_strips = 1;
inline constexpr int group_panels = 16;
#if HWY_TARGET == HWY_AVX2
inline constexpr int small_tile = 4;
template <int vectors>
inline constexpr int hot_keys = vectors == 2 ? 6 : 8;
template <int vectors>
inline constexpr int hot_rows = 6;
#else  // nobody is in a hurry without vectors
inline constexpr int small_tile = 2;
template <int vectors>
inline constexpr int hot_keys = 2;
template <int vectors>
inline constexpr int hot_rows = 2;
#endif
#endif
inline constexpr int block_keys = 192;

template <class T, int vectors>
inline constexpr int score_keys = hot<T> ? hot_keys<vectors> : small_tile;
template <class T, int vectors>
inline constexpr int pool_rows = hot<T> ? hot_rows<vectors> : small_tile;

template <class T>
inline constexpr int strip_width = strip_vectors* lanes_of<T>;

// Calls columns<vectors>(column, offset) for all columns of rows in strips, of which as many as possible go together; a
// strip and a half, too, where that is worth its code.
template <class T, bool with_half, class Columns>
HWY_INLINE void for_each_strip(int width, std::ptrdiff_t strip_stride, const Columns& columns) {
  int column = 0;
  std::ptrdiff_t offset = 0;
  const auto advance = [&]<int strips>() {
    for (; column + strips * strip_width<T> <= width;
         column += strips * strip_width<T>, offset += strips * strip_stride) {
      columns.template operator()<strips * strip_vectors>(column, offset);
    }
  };
  if constexpr (pool_strips<T> != 1) advance.template operator()<pool_strips<T>>();
  if constexpr (with_half && pool_strips<T> != 1) {
    if (width - column > strip_width<T>) return columns.template operator()<strip_vectors + 1>(column, offset);
  }
  advance.template operator()<1>();
  if (column < width) columns.template operator()<1>(column, offset);
}

// Calls run<vectors>() for a panel's lanes.
template <class T, class Run>
HWY_INLINE void with_vectors(int lanes, const Run& run) {
  if (lanes == lanes_of<T>) return run.template operator()<1>();
  if constexpr (max_vectors<T> != 2) {
    if (lanes == 2 * lanes_of<T>) return run.template operator()<2>();
  }
  run.template operator()<max_vectors<T>>();
}

// The same for scores that are no dot products, which load little: calls run<vectors>(first lane) for parts of a panel,
// at most two vectors wide.
template <class T, class Run>
HWY_INLINE void for_each_part(int lanes, const Run& run) {
  constexpr int L = lanes_of<T>;
  if constexpr (max_vectors<T> == 2) {
    with_vectors<T>(lanes, [&]<int vectors>() { run.template operator()<vectors>(0); });
  } else {
    int first = 0;
    for (; first + 2 * L <= lanes; first += 2 * L) run.template operator()<2>(first);
    if (first < lanes) run.template operator()<1>(first);
  }
}

// The lanes of a panel that such a part is of: a constant where parts are whole panels.
template <class T, int vectors>
HWY_INLINE int lanes_around(int lanes) {
  return max_vectors<T> == 2 ? vectors * lanes_of<T> : lanes;
}

// A tile of `count` keys, at most `most`.
template <int most, class Tile>
HWY_INLINE void score_some(int j, int count, const Tile& tile) {
  if constexpr (most > 0) {
    if (count == most) return tile.template operator()<most>(j);
    score_some<most - 1>(j, count, tile);
  }
}

// Calls tile<keys>(j) until all of first <= j < last have been in one tile.
//
// A small tile waits for its own sums, so two halves are better than a whole and a small one. But a tile of every
// height is much code: it is for float's plain scores with AVX2, whose 6 keys often leave some over, while AVX-512's 8
// divide its blocks and panels; all else takes small ones. All but what is left over at the end goes through one loop,
// where g++ keeps the sums in registers: it does not where the same tile stands behind a loop.
template <class T, int vectors, bool every_height, class Tile>
HWY_INLINE void for_each_score_tile(int first, int last, const Tile& tile) {
  constexpr int keys = score_keys<T, vectors>, at_least = every_height ? 2 * keys : keys;
  int j = first, left = last - first;
  for (; left >= at_least || left == keys; j += keys, left -= keys) tile.template operator()<keys>(j);
  if constexpr (every_height) {
    while (left > 0) {
      const int taken = left <= keys ? left : left <= keys + keys / 2 ? (left + 1) / 2 : keys;
      score_some<keys>(j, taken, tile);
      j += taken;
      left -= taken;
    }
  } else {
    if constexpr (keys > 6) {
      for (; left >= 4; j += 4, left -= 4) tile.template operator()<4>(j);
    }
    for (; left >= 2; j += 2, left -= 2) tile.template operator()<2>(j);
    if (left > 0) tile.template operator()<1>(j);
  }
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
