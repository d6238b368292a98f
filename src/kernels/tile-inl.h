// kernels/tile-inl.h: the micro-kernel under attention and gemm: a tile of sums held in registers.
#if defined(QKV_KERNELS_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_TILE_INL_H_
#undef QKV_KERNELS_TILE_INL_H_
#else
#define QKV_KERNELS_TILE_INL_H_
#endif

#include <cstddef>

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// sum[r][j] += over k < depth of a[r * a_row + k * a_step] * b[k * b_step + j], j a vector of columns.
//
// a is broadcast, b is loaded; each sum runs over k in rising order with one fused multiply-add a step, whatever the
// tile's shape, so an element's bits do not depend on the tile that computed it. Inlined, so that strides that are
// constants at the call stay constants here. Unrolled by 4: 2 and 8 were slower by 1 to 3 points (PERFORMANCE.md).
template <int rows, int vectors, class T>
HWY_INLINE void accumulate(const T* HWY_RESTRICT a, std::ptrdiff_t a_row, std::ptrdiff_t a_step,
                           const T* HWY_RESTRICT b, std::ptrdiff_t b_step, int depth, Vec<T> (&sum)[rows][vectors]) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  // Rows of four share a pointer. With one for all of many rows, g++ keeps their distances in registers, more than
  // there are. What the pointers have in common must be hidden for that.
  constexpr int shared = 4;
  const T* base[(rows + shared - 1) / shared];
  for (int r = 0; r < rows; r += shared) {
    base[r / shared] = a + r * a_row;
    if (rows > 6 && !__builtin_constant_p(a_row)) asm("" : "+r"(base[r / shared]));
  }
#if HWY_TARGET == HWY_SCALAR  // small code; nobody is in a hurry without vectors
#pragma GCC unroll 1
#else
#pragma GCC unroll 4
#endif
  for (int k = 0; k < depth; ++k) {
#if HWY_TARGET == HWY_SCALAR
    // g++ 12 would make vectors of the scalars of several k, and read a row behind the last one on the way.
    asm("" : "+r"(b));
#endif
    Vec<T> column[vectors];
    for (int j = 0; j < vectors; ++j) column[j] = hn::LoadU(d, b + j * L);
    for (int r = 0; r < rows; ++r) {
      const Vec<T> value = hn::Set(d, base[r / shared][r % shared * a_row]);
      for (int j = 0; j < vectors; ++j) sum[r][j] = hn::MulAdd(value, column[j], sum[r][j]);
    }
    for (auto& rows_of_four : base) rows_of_four += a_step;
    b += b_step;
  }
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
