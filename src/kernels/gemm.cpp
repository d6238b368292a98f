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
HWY_INLINE void tile(const GemmArgs<T>& args, int r, const T* panel, T* c, std::ptrdiff_t c_stride) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>, width = vectors * L;
  Vec<T> sum[rows][vectors];
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) sum[i][v] = hn::Zero(d);
    // c is far away as a rule, and needed when the sums are ready (2 to 4 points of the peak).
    __builtin_prefetch(c + i * c_stride, 1);
    __builtin_prefetch(c + i * c_stride + width - 1, 1);
  }
  accumulate(args.a + r * args.a_stride, args.a_stride, 1, panel, width, args.depth, sum);
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) {
      T* to = c + i * c_stride + v * L;
      hn::StoreU(args.accumulate ? hn::Add(hn::LoadU(d, to), sum[i][v]) : sum[i][v], d, to);
    }
  }
}

// Some rows of one panel's columns, into c or, for a panel that reaches beyond the last column, through a tile beside.
template <int rows, class T>
HWY_INLINE void panel_rows(const GemmArgs<T>& args, int r, const T* panel, int column) {
  constexpr int width = vectors * lanes_of<T>;
  T* c = args.c + r * args.c_stride + column;
  const int columns = args.columns - column;
  if (HWY_LIKELY(columns >= width)) return tile<rows>(args, r, panel, c, args.c_stride);
  HWY_ALIGN T beside[static_cast<std::size_t>(rows * width)] = {};
  if (args.accumulate) {
    for (int i = 0; i < rows; ++i) std::copy_n(c + i * args.c_stride, columns, beside + i * width);
  }
  tile<rows>(args, r, panel, beside, width);
  for (int i = 0; i < rows; ++i) std::copy_n(beside + i * width, columns, c + i * args.c_stride);
}

template <class T>
void multiply(const GemmArgs<T>& args) {
  constexpr int width = vectors * lanes_of<T>;
  const T* panel = args.b;
  for (int column = 0; column < args.columns; column += width, panel += args.panel_stride) {
    int r = 0;
    for (; r + tile_rows <= args.rows; r += tile_rows) panel_rows<tile_rows>(args, r, panel, column);
    if constexpr (tile_rows > 4) {
      if (r + 4 <= args.rows) {
        panel_rows<4>(args, r, panel, column);
        r += 4;
      }
    }
    if (r + 2 <= args.rows) {
      panel_rows<2>(args, r, panel, column);
      r += 2;
    }
    if (r < args.rows) panel_rows<1>(args, r, panel, column);
  }
}

// Neighbouring panels whose columns lie side by side: whole vectors, row by row, so that the memory is read in runs.
template <int panels, class T>
HWY_INLINE void pack_panels(const PackArgs<T>& args, int column, T* target) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>, width = vectors * L, rows_ahead = 8;
  const std::ptrdiff_t row_step = args.row_step, panel_stride = args.panel_stride;
  const int depth = args.depth;
  const T* from = args.b + column;
  for (int k = 0; k < depth; ++k, from += row_step, target += width) {
    for (int i = 0; i < panels; ++i) {
      __builtin_prefetch(from + rows_ahead * row_step + i * width);  // a hint: it may point anywhere
      T* to = target + i * panel_stride;
      for (int v = 0; v < vectors; ++v) hn::StoreU(hn::LoadU(d, from + i * width + v * L), d, to + v * L);
    }
  }
}

// Several panels at once where that is possible; one element after the other for columns that lie apart or are too few.
template <class T>
void pack(const PackArgs<T>& args) {
  constexpr int width = vectors * lanes_of<T>, at_once = 4;
  T* target = args.target;
  int column = 0;
  if (args.column_step == 1) {
    for (; column + at_once * width <= args.columns; column += at_once * width, target += at_once * args.panel_stride) {
      pack_panels<at_once>(args, column, target);
    }
    for (; column + width <= args.columns; column += width, target += args.panel_stride) {
      pack_panels<1>(args, column, target);
    }
  }
  for (; column < args.columns; column += width, target += args.panel_stride) {
    const int count = std::min(width, args.columns - column);
    const T* from = args.b + column * args.column_step;
    for (int k = 0; k < args.depth; ++k) {
      for (int c = 0; c < width; ++c) {
        target[k * width + c] = c < count ? from[k * args.row_step + c * args.column_step] : T(0);
      }
    }
  }
}

template <class T>
constexpr GemmKernels<T> gemm_table = {vectors* lanes_of<T>, block_rows, block_depth, multiply<T>, pack<T>};

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
