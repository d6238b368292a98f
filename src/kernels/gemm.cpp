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
HWY_INLINE void tile(const GemmArgs<T>& args, int r, const T* panel, T* c, std::ptrdiff_t c_stride, const T* added,
                     std::ptrdiff_t added_stride) {
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
      if (added != nullptr) sum[i][v] = hn::Add(hn::LoadU(d, added + i * added_stride + v * L), sum[i][v]);
      hn::StoreU(sum[i][v], d, c + i * c_stride + v * L);
    }
  }
}

// Some rows of one panel's columns, into c or, for a panel that reaches beyond the last column, through a tile beside.
template <int rows, class T>
HWY_INLINE void panel_rows(const GemmArgs<T>& args, int r, const T* panel, int column) {
  constexpr int width = vectors * lanes_of<T>;
  T* c = args.c + r * args.c_stride + column;
  const T* added = args.added == nullptr ? nullptr : args.added + r * args.added_stride + column;
  const int columns = args.columns - column;
  if (HWY_LIKELY(columns >= width)) {
    return tile<rows>(args, r, panel, c, args.c_stride, added, args.added_stride);
  }
  HWY_ALIGN T beside[static_cast<std::size_t>(rows * width)] = {};
  if (added != nullptr) {
    for (int i = 0; i < rows; ++i) std::copy_n(added + i * args.added_stride, columns, beside + i * width);
  }
  tile<rows>(args, r, panel, beside, width, beside, width);
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

// Squares of 16 bytes a side are transposed in registers. Columns come in runs of a cache line, and lines one after the
// other within a run: so each line of the source is read once, and few lines of the target are written at a time.
template <class T>
void transpose(const TransposeArgs<T>& args) {
  int run = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int side = 16 / static_cast<int>(sizeof(T)), run_columns = 64 / static_cast<int>(sizeof(T));
  const hn::FixedTag<T, side> d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<hn::FixedTag<float, 4>>> pairs;
  for (; run + run_columns <= args.columns; run += run_columns) {
    int line = 0;
    for (; line + side <= args.lines; line += side) {
      const T* source = args.source + line * args.source_stride + run;
      T* target = args.target + run * args.target_stride + line;
      for (int c = 0; c < run_columns; c += side, source += side, target += side * args.target_stride) {
        if constexpr (side == 4) {
          const auto a = hn::LoadU(d, source), b = hn::LoadU(d, source + args.source_stride);
          const auto e = hn::LoadU(d, source + 2 * args.source_stride),
                     f = hn::LoadU(d, source + 3 * args.source_stride);
          const auto ab = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
          const auto ef = hn::BitCast(pairs, hn::InterleaveLower(d, e, f));
          const auto ab_upper = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
          const auto ef_upper = hn::BitCast(pairs, hn::InterleaveUpper(d, e, f));
          hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ef)), d, target);
          hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ef)), d, target + args.target_stride);
          hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab_upper, ef_upper)), d,
                     target + 2 * args.target_stride);
          hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab_upper, ef_upper)), d,
                     target + 3 * args.target_stride);
        } else {
          const auto a = hn::LoadU(d, source), b = hn::LoadU(d, source + args.source_stride);
          hn::StoreU(hn::InterleaveLower(d, a, b), d, target);
          hn::StoreU(hn::InterleaveUpper(d, a, b), d, target + args.target_stride);
        }
      }
    }
    for (; line < args.lines; ++line) {
      for (int c = run; c < run + run_columns; ++c) {
        args.target[c * args.target_stride + line] = args.source[line * args.source_stride + c];
      }
    }
  }
#endif
  for (; run < args.columns; ++run) {
    for (int line = 0; line < args.lines; ++line) {
      args.target[run * args.target_stride + line] = args.source[line * args.source_stride + run];
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
  } else if (args.row_step == 1) {
    for (; column + width <= args.columns; column += width, target += args.panel_stride) {
      transpose<T>({args.b + column * args.column_step, args.column_step, width, args.depth, target, width});
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
constexpr GemmKernels<T> gemm_table = {vectors* lanes_of<T>, block_rows, block_depth,
                                       multiply<T>,          pack<T>,    transpose<T>};

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
