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
inline constexpr int cache_line = 64;  // bytes

// The panel after this one, fetched into the second-level cache while this one is multiplied, a few cache lines every
// few steps of depth: panels come from the third-level cache as a rule, and few rows do not wait for them (5 points of
// the peak with 144 rows, 8 with 64; all lines of a tile at once bring half of that).
struct Ahead {
  static constexpr int depth = 16, lines = 2;  // so many lines every so many steps; 1 and 4 are slower

  const char* first;  // what the tile's share begins with
  int times;          // how often the tile fetches
};

template <int rows, class T>
HWY_INLINE void tile(const GemmArgs<T>& args, int r, const T* panel, Ahead ahead, T* c, std::ptrdiff_t c_stride) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>, width = vectors * L;
  Vec<T> sum[rows][vectors];
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) sum[i][v] = hn::Zero(d);
    // c is far away as a rule, and needed when the sums are ready (2 to 4 points of the peak).
    __builtin_prefetch(c + i * c_stride, 1);
    __builtin_prefetch(c + i * c_stride + width - 1, 1);
  }
  const T* a = args.a + r * args.a_stride;
  for (int k = 0; k < args.depth / Ahead::depth; ++k, a += Ahead::depth, panel += Ahead::depth * width) {
    if (k < ahead.times) {
      for (int i = 0; i < Ahead::lines; ++i, ahead.first += cache_line) __builtin_prefetch(ahead.first, 0, 2);
    }
    accumulate(a, args.a_stride, 1, panel, width, Ahead::depth, sum);
  }
  accumulate(a, args.a_stride, 1, panel, width, args.depth % Ahead::depth, sum);
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) {
      T* to = c + i * c_stride + v * L;
      hn::StoreU(args.accumulate ? hn::Add(hn::LoadU(d, to), sum[i][v]) : sum[i][v], d, to);
    }
  }
}

// Some rows of one panel's columns, into c or, for a panel that reaches beyond the last column, through a tile beside.
template <int rows, class T>
HWY_INLINE void panel_rows(const GemmArgs<T>& args, int r, const T* panel, int times_ahead, int column) {
  constexpr int width = vectors * lanes_of<T>;
  T* c = args.c + r * args.c_stride + column;
  const int columns = args.columns - column;
  // A hint: behind the last panel it may point anywhere.
  const Ahead ahead = {reinterpret_cast<const char*>(panel + args.panel_stride) +
                           r / tile_rows * times_ahead * (Ahead::lines * cache_line),
                       times_ahead};
  if (HWY_LIKELY(columns >= width)) return tile<rows>(args, r, panel, ahead, c, args.c_stride);
  HWY_ALIGN T beside[static_cast<std::size_t>(rows * width)] = {};
  if (args.accumulate) {
    for (int i = 0; i < rows; ++i) std::copy_n(c + i * args.c_stride, columns, beside + i * width);
  }
  tile<rows>(args, r, panel, ahead, beside, width);
  for (int i = 0; i < rows; ++i) std::copy_n(beside + i * width, columns, c + i * args.c_stride);
}

template <class T>
void multiply(const GemmArgs<T>& args) {
  constexpr int width = vectors * lanes_of<T>;
  const int lines = args.depth * width * static_cast<int>(sizeof(T)) / cache_line;
  const int times_ahead = lines * tile_rows / (args.rows * Ahead::lines) + 1;
  const T* panel = args.b;
  for (int column = 0; column < args.columns; column += width, panel += args.panel_stride) {
    int r = 0;
    for (; r + tile_rows <= args.rows; r += tile_rows) panel_rows<tile_rows>(args, r, panel, times_ahead, column);
    if constexpr (tile_rows > 4) {
      if (r + 4 <= args.rows) {
        panel_rows<4>(args, r, panel, times_ahead, column);
        r += 4;
      }
    }
    if (r + 2 <= args.rows) {
      panel_rows<2>(args, r, panel, times_ahead, column);
      r += 2;
    }
    if (r < args.rows) panel_rows<1>(args, r, panel, times_ahead, column);
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

// A square of 16 bytes across, transposed in registers.
template <class T>
HWY_INLINE void transpose_square(const T* from, [[maybe_unused]] std::ptrdiff_t from_stride, T* to,
                                 [[maybe_unused]] std::ptrdiff_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = from[0];
#else
  const hn::FixedTag<T, 16 / sizeof(T)> d;
  if constexpr (sizeof(T) == 4) {
    const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + from_stride);
    const auto c = hn::LoadU(d, from + 2 * from_stride), e = hn::LoadU(d, from + 3 * from_stride);
    const auto ac = hn::InterleaveLower(d, a, c), be = hn::InterleaveLower(d, b, e);
    const auto ac2 = hn::InterleaveUpper(d, a, c), be2 = hn::InterleaveUpper(d, b, e);
    hn::StoreU(hn::InterleaveLower(d, ac, be), d, to);
    hn::StoreU(hn::InterleaveUpper(d, ac, be), d, to + to_stride);
    hn::StoreU(hn::InterleaveLower(d, ac2, be2), d, to + 2 * to_stride);
    hn::StoreU(hn::InterleaveUpper(d, ac2, be2), d, to + 3 * to_stride);
  } else {
    const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + from_stride);
    hn::StoreU(hn::InterleaveLower(d, a, b), d, to);
    hn::StoreU(hn::InterleaveUpper(d, a, b), d, to + to_stride);
  }
#endif
}

// In blocks of whole cache lines on both sides, and squares in them; one element after the other at the edges.
template <class T>
void transpose(const TransposeArgs<T>& args) {
  constexpr int block = cache_line / sizeof(T), square = HWY_TARGET == HWY_SCALAR ? 1 : 16 / sizeof(T);
  for (int r = 0; r < args.rows; r += block) {
    const int rows = std::min(block, args.rows - r), whole_rows = rows / square * square;
    for (int c = 0; c < args.columns; c += block) {
      const int columns = std::min(block, args.columns - c), whole_columns = columns / square * square;
      const T* from = args.from + r * args.from_stride + c;
      T* to = args.to + c * args.to_stride + r;
      for (int i = 0; i < whole_rows; i += square) {
        for (int j = 0; j < whole_columns; j += square) {
          transpose_square(from + i * args.from_stride + j, args.from_stride, to + j * args.to_stride + i,
                           args.to_stride);
        }
      }
      for (int i = 0; i < rows; ++i) {
        for (int j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
          to[j * args.to_stride + i] = from[i * args.from_stride + j];
        }
      }
    }
  }
}

// Several panels at once where columns lie side by side; a panel transposed where rows do; else one element after the
// other, as for columns that are too few.
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
