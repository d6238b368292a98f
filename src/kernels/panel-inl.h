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
// AVX-512: a tile two vectors wide loads each key once for both. Processors with two multiply-adds of whole vectors a
// cycle (Intel, Zen 5) load two vectors a cycle, too, so that one vector is not enough: share of peak of the score
// alone on Emerald Rapids, D = 64: 95 % with 12 keys by 2 vectors, 91 with 8 by 2, 83 with 8 by 1. (Zen 4, with half as
// many multiply-adds, has the same speed with one vector and with two, within 2 points; PERFORMANCE.md.) AVX2, with 16
// registers: 6 keys by 2 vectors (Zen 3, the same: 96 %; 4 by 3 had 93).
inline constexpr int max_vectors = 2;
inline constexpr int block_keys = 192;
#if HWY_TARGET == HWY_AVX3
inline constexpr int hot_rows = 8, small_tile = 4;
template <int vectors>
inline constexpr int hot_keys = 12;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int hot_rows = 6, small_tile = 4;
template <int vectors>
inline constexpr int hot_keys = vectors == 2 ? 6 : 8;
#else  // nobody is in a hurry without vectors
inline constexpr int hot_rows = 2, small_tile = 2;
template <int vectors>
inline constexpr int hot_keys = 2;
#endif

template <class T, int vectors>
inline constexpr int score_keys = hot<T> ? hot_keys<vectors> : small_tile;
template <class T>
inline constexpr int pool_rows = hot<T> ? hot_rows : small_tile;

inline constexpr int pool_vectors = 2;
template <class T>
inline constexpr int strip_width = pool_vectors* lanes_of<T>;
inline constexpr int group_panels = 16;

// Calls run<vectors>() for a panel's lanes.
template <class T, class Run>
HWY_INLINE void with_vectors(int lanes, const Run& run) {
  if (lanes == lanes_of<T>) return run.template operator()<1>();
  run.template operator()<max_vectors>();
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
// height is much code: it is for float's plain scores; all else takes small ones. All but what is left over at the end
// goes through one loop, where g++ keeps the sums in registers: it does not where the same tile stands behind a loop.
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
    if constexpr (keys > 8) {
      for (; left >= 4; j += 4, left -= 4) tile.template operator()<4>(j);
    }
    for (; left >= 2; j += 2, left -= 2) tile.template operator()<2>(j);
    if (left > 0) tile.template operator()<1>(j);
  }
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
