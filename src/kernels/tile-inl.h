// kernels/tile-inl.h: the micro-kernel under attention and gemm: a tile of sums held in registers.
#if defined(QKV_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_TILE_INL_H_
#undef QKV_KERNELS_TILE_INL_H_
#else
#define QKV_KERNELS_TILE_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// What more code is spent on: all else has small tiles, and loops that are not unrolled.
template <class T>
inline constexpr bool hot = std::is_same_v<T, float>&& HWY_TARGET != HWY_SCALAR;

// Values that are loaded as vectors may lie in strips of so many.
inline constexpr int strip_vectors = 2;

// Rows of four share a pointer. With one for all of many rows, g++ keeps their distances in registers, more than there
// are. Rows that are neighbours in memory share one, all of them: every addition takes the place of a multiply-add.
inline constexpr int rows_of_pointer = 4;
template <int rows, int shared, class T>
using RowPointers = const T * [(rows + shared - 1) / shared];

// One step of what follows.
template <int shared, int rows, int vectors, class T>
HWY_INLINE void accumulate_step(RowPointers<rows, shared, T>& a, std::ptrdiff_t a_row, std::ptrdiff_t a_step,
                                const T* b, std::ptrdiff_t b_strip, Vec<T> (&sum)[rows][vectors]) {
  const Tag<T> d;
  Vec<T> column[vectors];
  for (int j = 0; j < vectors; ++j) {
    column[j] = hn::LoadU(d, b + j / strip_vectors * b_strip + j % strip_vectors * lanes_of<T>);
  }
  for (int r = 0; r < rows; ++r) {
    const Vec<T> value = hn::Set(d, a[r / shared][r % shared * a_row]);
    for (int j = 0; j < vectors; ++j) sum[r][j] = hn::MulAdd(value, column[j], sum[r][j]);
  }
  for (auto& pointer : a) pointer += a_step;
}

// sum[r][j] += over k < depth of a[r * a_row + k * a_step] * b[k * b_step + j], j a vector of columns. Strips of two
// vectors are b_strip apart, side by side as a rule.
//
// a is broadcast, b is loaded; each sum runs over k in rising order with one fused multiply-add a step, whatever the
// tile's shape, so an element's bits do not depend on the tile that computed it. Inlined, so that strides that are
// constants at the call stay constants here. Unrolled by 4: 2 and 8 were slower by 1 to 3 points (PERFORMANCE.md).
template <int shared = rows_of_pointer, int rows, int vectors, class T>
HWY_INLINE void accumulate(const T* HWY_RESTRICT a, std::ptrdiff_t a_row, std::ptrdiff_t a_step,
                           const T* HWY_RESTRICT b, std::ptrdiff_t b_step, int depth, Vec<T> (&sum)[rows][vectors],
                           std::ptrdiff_t b_strip = strip_vectors * lanes_of<T>) {
  RowPointers<rows, shared, T> pointers;
  for (int r = 0; r < rows; r += shared) {
    pointers[r / shared] = a + r * a_row;
    // Hides what they have in common.
    if (rows > 6 && !__builtin_constant_p(a_row)) asm("" : "+r"(pointers[r / shared]));
  }
  if constexpr (hot<T>) {
#pragma GCC unroll 4
    for (int k = 0; k < depth; ++k, b += b_step) accumulate_step<shared>(pointers, a_row, a_step, b, b_strip, sum);
  } else {
#pragma GCC unroll 1
    for (int k = 0; k < depth; ++k, b += b_step) {
#if HWY_TARGET == HWY_SCALAR
      // g++ 12 would make vectors of the scalars of several k, and read a row behind the last one on the way.
      asm("" : "+r"(b));
#endif
      accumulate_step<shared>(pointers, a_row, a_step, b, b_strip, sum);
    }
  }
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
