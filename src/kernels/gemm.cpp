// kernels/gemm.cpp: products of blocks of matrices.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

inline constexpr int vectors = 2;
#if HWY_TARGET == HWY_AVX3
inline constexpr int tile_rows = 8;
#else
inline constexpr int tile_rows = 6;
#endif
inline constexpr int block_rows = 24 * tile_rows;
inline constexpr int block_depth = 256;

template <int rows, class T>
HWY_INLINE void tile(const GemmArgs<T>& args, int r, const T* panel, int column) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>, width = vectors * L;
  T* c = args.c + r * args.c_stride + column;
  std::ptrdiff_t c_stride = args.c_stride;
  // A panel that reaches beyond the last column goes through a full tile beside.
  const int columns = std::min(width, args.columns - column);
  HWY_ALIGN T beside[static_cast<std::size_t>(rows * width)] = {};
  if (columns < width) {
    if (args.accumulate) {
      for (int i = 0; i < rows; ++i) std::copy_n(c + i * c_stride, columns, beside + i * width);
    }
    c = beside;
    c_stride = width;
  }
  Vec<T> sum[rows][vectors];
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) {
      sum[i][v] = args.accumulate ? hn::LoadU(d, c + i * c_stride + v * L) : hn::Zero(d);
    }
  }
  accumulate(args.a + r * args.a_stride, args.a_stride, 1, panel, width, args.depth, sum);
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) hn::StoreU(sum[i][v], d, c + i * c_stride + v * L);
  }
  if (columns < width) {
    for (int i = 0; i < rows; ++i) std::copy_n(beside + i * width, columns, args.c + (r + i) * args.c_stride + column);
  }
}

template <class T>
void multiply(const GemmArgs<T>& args) {
  constexpr int width = vectors * lanes_of<T>;
  const T* panel = args.b;
  for (int column = 0; column < args.columns; column += width, panel += args.panel_stride) {
    int r = 0;
    for (; r + tile_rows <= args.rows; r += tile_rows) tile<tile_rows>(args, r, panel, column);
    if (r + 4 <= args.rows) {
      tile<4>(args, r, panel, column);
      r += 4;
    }
    if (r + 2 <= args.rows) {
      tile<2>(args, r, panel, column);
      r += 2;
    }
    if (r < args.rows) tile<1>(args, r, panel, column);
  }
}

template <class T>
constexpr GemmKernels<T> gemm_table = {vectors * lanes_of<T>, block_rows, block_depth, multiply<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const GemmKernels<float>& gemm_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, gemm_table<float>);
}
template <>
const GemmKernels<double>& gemm_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, gemm_table<double>);
}

}  // namespace qkv::kernels
#endif
