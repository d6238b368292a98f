// kernels/keys-inl.h: walking the keys of a block, for scores that are not dot products.
#if defined(QKV_KERNELS_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_KEYS_INL_H_
#undef QKV_KERNELS_KEYS_INL_H_
#else
#define QKV_KERNELS_KEYS_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "kernels/block.h"
#include "kernels/half-inl.h"
#include "kernels/panel-inl.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// Calls tile<keys>(j), or with fewer keys, until all of first <= j < last have been in a tile. Some may be in two: a
// whole tile that reaches back is less work than several small ones. So a tile must depend on nothing but its keys.
template <int keys, class Tile>
HWY_INLINE void for_each_tile(int first, int last, const Tile& tile) {
  int j = first;
  if (last - first >= keys) {
    for (; j + keys / 2 < last; j += keys) tile.template operator()<keys>(std::min(j, last - keys));
  }
  if constexpr (keys > 1) {
    if (j < last) for_each_tile<keys / 2>(j, last, tile);
  }
}

// Fills the scores of a part of a panel, from the lane `part` on: fill(key, sums) turns zeros into the scores of a tile
// whose first key is given. Raises row_max where that is asked for.
template <int tile_keys, int vectors, class T, class Fill>
HWY_INLINE void fill_part(const ScoreArgs<T>& args, int part, const Fill& fill) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  Vec<T> highest[vectors];
  for (int v = 0; v < vectors; ++v) {
    highest[v] = args.row_max != nullptr ? hn::Load(d, args.row_max + part + v * L) : hn::Zero(d);
  }
  const T* keys_begin = static_cast<const T*>(args.keys);
  const std::ptrdiff_t key_stride = args.key_stride;
  const int lanes = lanes_around<T, vectors>(args.lanes);
  T* scores = args.scores + part;
  for_each_tile<tile_keys>(args.first, args.last, [&]<int keys>(int j) {
    Vec<T> sum[keys][vectors];
    for (int r = 0; r < keys; ++r) {
      for (int v = 0; v < vectors; ++v) sum[r][v] = hn::Zero(d);
    }
    fill(keys_begin + j * key_stride, sum);
    T* at = scores + j * lanes;
    for (int v = 0; v < vectors; ++v) {
      auto high = highest[v];
      for (int r = 0; r < keys; ++r) {
        high = max_of_numbers(high, sum[r][v]);
        hn::Store(sum[r][v], d, at + r * lanes + v * L);
      }
      highest[v] = high;
    }
  });
  if (args.row_max == nullptr) return;
  for (int v = 0; v < vectors; ++v) hn::Store(highest[v], d, args.row_max + part + v * L);
}

// The distance of decode's rows of queries.
template <class T>
HWY_INLINE std::ptrdiff_t padded_depth(int depth) {
  return (depth + lanes_of<T> - 1) / lanes_of<T> * lanes_of<T>;
}

// Fills the scores of decode: fill<rows>(key, queries, scores) does it for one key and some rows of queries.
//
// In four streams, because one alone does not get the whole bandwidth of the memory; see decode.cpp. At most four rows
// at a time, for more would not fit the registers.
template <class T, class Fill>
HWY_INLINE void fill_rows(const ScoreArgs<T>& args, std::ptrdiff_t query_stride, const Fill& fill) {
  constexpr int stream = decode_keys / 4;
  const T* keys = static_cast<const T*>(args.keys);
  const T* queries = args.queries;
  T* scores = args.scores;
  const std::ptrdiff_t key_stride = args.key_stride;
  const int lanes = args.lanes, begin = args.first, last = args.last;
  const auto run = [&]<int rows>() {
    for (int first = begin; first < std::min(begin + stream, last); ++first) {
#pragma GCC unroll 1
      for (int j = first; j < last; j += stream) {
        for (int r = 0; r < lanes; r += rows) {
          fill.template operator()<rows>(keys + j * key_stride, queries + r * query_stride, scores + j * lanes + r);
        }
      }
    }
  };
  if (lanes == 1) return run.template operator()<1>();
  if (lanes == 2) return run.template operator()<2>();
  run.template operator()<4>();
}

// Walks a row two vectors at a time: calls pair(c, load1, load2) for the vectors at c and behind it, whose elements are
// loaded by load1(row + c) and load2(row + c + vector), and once, at the end, single(c, load) where one is left over.
template <class T, class Pair, class Single>
HWY_INLINE void for_each_pair(int depth, const Pair& pair, const Single& single) {
  constexpr int L = lanes_of<T>;
  const auto whole = [](const T* at) { return hn::LoadU(Tag<T>(), at); };
  int c = 0;
  for (; c + 2 * L <= depth; c += 2 * L) pair(c, whole, whole);
  const int left = depth - c;
  if (left > L) return pair(c, whole, [=](const T* at) { return load_some<T>(at, left - L); });
  if (left > 0) single(c, [=](const T* at) { return load_some<T>(at, left); });
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
