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

// With AVX-512 as tiles of pooled values, see panel-inl.h: 6 by 4 has 10 to 28 % more speed than 8 by 2 on Ice Lake.
template <class T>
inline constexpr int vectors = hot<T>&& HWY_TARGET == HWY_AVX3 ? 4 : 2;
template <class T>
inline constexpr int tile_rows = hot<T> ? 6 : 4;
template <class T>
inline constexpr int panel_width = vectors<T>* lanes_of<T>;
// Sums that are ready at once need not be fetched again: a depth of 512 in one piece has 1 to 2 points more than in two
// with AVX2 (Zen 3), and squares of 2048 have 5 more with AVX-512 (Emerald Rapids; 1 on Ice Lake), though a panel of it
// is more than the first-level cache holds.
inline constexpr int block_depth = 512;
template <class T>
inline constexpr int block_rows = 24 * tile_rows<T>;
template <class T>
inline constexpr int block_size = block_rows<T> * 256;  // twice of it costs a point
inline constexpr int cache_line = 64;                   // bytes

// Neighbouring panels whose columns lie side by side: whole vectors, row by row, so that the memory is read in runs.
template <int panels, class T>
HWY_INLINE void pack_panels(const PackArgs<T>& args, int column, T* target) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>, width = panel_width<T>, rows_ahead = 8;
  const std::ptrdiff_t row_step = args.row_step, panel_stride = args.panel_stride;
  const int depth = args.depth;
  const T* from = args.b + column;
  for (int k = 0; k < depth; ++k, from += row_step, target += width) {
    for (int i = 0; i < panels; ++i) {
      __builtin_prefetch(from + rows_ahead * row_step + i * width);  // a hint: it may point anywhere
      T* to = target + i * panel_stride;
      for (int v = 0; v < vectors<T>; ++v) hn::StoreU(hn::LoadU(d, from + i * width + v * L), d, to + v * L);
    }
  }
}

// A square of 16 bytes a side.
template <class T>
HWY_INLINE void transpose_square(const T* source, [[maybe_unused]] std::ptrdiff_t source_stride, T* target,
                                 [[maybe_unused]] std::ptrdiff_t target_stride) {
#if HWY_TARGET == HWY_SCALAR
  target[0] = source[0];
#else
  const hn::FixedTag<T, 16 / sizeof(T)> d;
  const auto a = hn::LoadU(d, source), b = hn::LoadU(d, source + source_stride);
  if constexpr (sizeof(T) == 4) {
    const auto e = hn::LoadU(d, source + 2 * source_stride), f = hn::LoadU(d, source + 3 * source_stride);
    const auto ae = hn::InterleaveLower(d, a, e), bf = hn::InterleaveLower(d, b, f);
    const auto ae_upper = hn::InterleaveUpper(d, a, e), bf_upper = hn::InterleaveUpper(d, b, f);
    hn::StoreU(hn::InterleaveLower(d, ae, bf), d, target);
    hn::StoreU(hn::InterleaveUpper(d, ae, bf), d, target + target_stride);
    hn::StoreU(hn::InterleaveLower(d, ae_upper, bf_upper), d, target + 2 * target_stride);
    hn::StoreU(hn::InterleaveUpper(d, ae_upper, bf_upper), d, target + 3 * target_stride);
  } else {
    hn::StoreU(hn::InterleaveLower(d, a, b), d, target);
    hn::StoreU(hn::InterleaveUpper(d, a, b), d, target + target_stride);
  }
#endif
}

// In blocks of whole cache lines on both sides, along the source's lines. These lie apart, where the processor does not
// look ahead by itself: fetching two blocks ahead brings 4 points of the peak of a product.
template <class T>
void transpose(const TransposeArgs<T>& args) {
  constexpr int block = cache_line / sizeof(T), side = HWY_TARGET == HWY_SCALAR ? 1 : 16 / sizeof(T);
  for (int line = 0; line < args.lines; line += block) {
    const int lines = std::min(block, args.lines - line), whole_lines = lines / side * side;
    for (int column = 0; column < args.columns; column += block) {
      const int columns = std::min(block, args.columns - column), whole_columns = columns / side * side;
      const T* source = args.source + line * args.source_stride + column;
      T* target = args.target + column * args.target_stride + line;
      for (int i = 0; i < lines; ++i) __builtin_prefetch(source + i * args.source_stride + 2 * block);
      for (int i = 0; i < whole_lines; i += side) {
        for (int j = 0; j < whole_columns; j += side) {
          transpose_square(source + i * args.source_stride + j, args.source_stride, target + j * args.target_stride + i,
                           args.target_stride);
        }
      }
      for (int i = 0; i < lines; ++i) {
        for (int j = i < whole_lines ? whole_columns : 0; j < columns; ++j) {
          target[j * args.target_stride + i] = source[i * args.source_stride + j];
        }
      }
    }
  }
}

// Several panels at once where that is possible; one element after the other for columns that lie apart or are too few.
template <class T>
void pack(const PackArgs<T>& args) {
  constexpr int width = panel_width<T>, at_once = 4;
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

// The panel after this one, fetched into the second-level cache while this one is multiplied: panels come from the
// third-level cache as a rule, and few rows do not make up for the wait. 5 points of the peak with 144 rows, 8 with 64.
// A tile fetches its share, run after run of as many lines as a row has, but two at least, some every `depth` steps.
struct Ahead {
  static constexpr int depth = 16;
  static constexpr int most_lines = 8;  // at once; more would have to be waited for

  const char* at;
  std::ptrdiff_t line, step;  // from a line of a run to the next, and to the next run
  int at_once;                // so many runs
  int times;
};
template <class T>
inline constexpr int row_bytes = panel_width<T>* static_cast<int>(sizeof(T));
template <class T>
inline constexpr int row_lines = std::max(row_bytes<T> / cache_line, 2);

// Rows of a matrix that are not a panel's yet.
template <class T>
struct Unpacked {
  const T* from;
  std::ptrdiff_t step;
  T* panel;

  void pack(int count) {
    const Tag<T> d;
    constexpr int L = lanes_of<T>;
    for (int k = 0; k < count; ++k, from += step, panel += panel_width<T>) {
      for (int v = 0; v < vectors<T>; ++v) hn::Store(hn::LoadU(d, from + v * L), d, panel + v * L);
    }
  }
};

// Packs the panel on the way, if it is unpacked.
template <int rows, bool packs, class T>
HWY_INLINE void tile(const GemmArgs<T>& args, int r, const T* panel, Ahead ahead, T* c, std::ptrdiff_t c_stride,
                     const T* added, std::ptrdiff_t added_stride, [[maybe_unused]] Unpacked<T> unpacked) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>, width = panel_width<T>;
  Vec<T> sum[rows][vectors<T>];
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors<T>; ++v) sum[i][v] = hn::Zero(d);
    // c is far away as a rule, and needed when the sums are ready (2 to 4 points of the peak).
    for (int l = 0; l < row_lines<T>; ++l) {
      __builtin_prefetch(c + i * c_stride + l * (width - 1) / (row_lines<T> - 1), 1);
    }
  }
  const T* a = args.a + r * args.a_stride;
  for (int turn = 0; turn < args.depth / Ahead::depth; ++turn) {
    if (turn < ahead.times) {
      for (int i = 0; i < ahead.at_once; ++i, ahead.at += ahead.step) {
        for (int l = 0; l < row_lines<T>; ++l) __builtin_prefetch(ahead.at + l * ahead.line, 0, 2);
      }
    }
    if constexpr (packs) unpacked.pack(Ahead::depth);
    accumulate(a, args.a_stride, 1, panel, width, Ahead::depth, sum);
    a += Ahead::depth;
    panel += Ahead::depth * width;
  }
  // One step at a time, for the size of the code: as a rule nothing is left.
  for (int k = 0; k < args.depth % Ahead::depth; ++k) {
    if constexpr (packs) unpacked.pack(1);
    accumulate(a + k, args.a_stride, 1, panel + k * width, width, 1, sum);
  }
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors<T>; ++v) {
      if (added != nullptr) sum[i][v] = hn::Add(hn::LoadU(d, added + i * added_stride + v * L), sum[i][v]);
      hn::StoreU(sum[i][v], d, c + i * c_stride + v * L);
    }
  }
}

// One panel's columns.
template <class T>
struct Columns {
  const T* panel;
  int column;
  Ahead ahead;           // of a tile
  Unpacked<T> unpacked;  // by the first tile, if from anything
};

// Some rows of them, into c or, for a panel that reaches beyond the last column, through a tile beside.
template <int rows, class T>
HWY_INLINE void panel_rows(const GemmArgs<T>& args, int r, const Columns<T>& of) {
  constexpr int width = panel_width<T>;
  T* c = args.c + r * args.c_stride + of.column;
  const T* added = args.added == nullptr ? nullptr : args.added + r * args.added_stride + of.column;
  const int columns = args.columns - of.column;
  Ahead ahead = of.ahead;
  ahead.at += r / tile_rows<T> * ahead.times * ahead.at_once * ahead.step;
  if constexpr (rows == tile_rows<T> && hot<T>) {
    if (r == 0 && of.unpacked.from != nullptr) {
      return tile<rows, true>(args, r, of.panel, ahead, c, args.c_stride, added, args.added_stride, of.unpacked);
    }
  }
  const bool is_whole = columns >= width;
  HWY_ALIGN T beside[static_cast<std::size_t>(rows * width)];
  if (!is_whole && added != nullptr) {
    for (int i = 0; i < rows; ++i) {
      std::fill_n(std::copy_n(added + i * args.added_stride, columns, beside + i * width), width - columns, T(0));
    }
    added = beside;
  }
  tile<rows, false>(args, r, of.panel, ahead, is_whole ? c : beside, is_whole ? args.c_stride : width, added,
                    is_whole ? args.added_stride : width, {});
  if (!is_whole) {
    for (int i = 0; i < rows; ++i) std::copy_n(beside + i * width, columns, c + i * args.c_stride);
  }
}

// Hints for so many runs of lines. They may point anywhere behind the last panel.
template <class T>
Ahead ahead_of(const GemmArgs<T>& args, const T* first, std::ptrdiff_t line, std::ptrdiff_t step, int runs) {
  const int tiles = std::max(args.rows / tile_rows<T>, 1), turns = std::max(args.depth / Ahead::depth, 1);
  const int share = (runs + tiles - 1) / tiles;
  const int at_once = std::min((share + turns - 1) / turns, Ahead::most_lines / row_lines<T>);
  return {reinterpret_cast<const char*>(first), line, step, at_once, share / std::max(at_once, 1) + 1};
}

// The panel at a column. Where it has to be packed, that is left to the first tile if the matrix has it row by row.
template <class T>
HWY_INLINE Columns<T> columns_at(const GemmArgs<T>& args, int column) {
  constexpr int width = panel_width<T>;
  const std::ptrdiff_t index = column / width;
  const T* panel = args.b + index * args.panel_stride;
  if (args.unpacked == nullptr) {
    constexpr int run = row_lines<T> * cache_line;
    const int runs = args.depth * row_bytes<T> / run;
    return {panel, column, ahead_of(args, panel + args.panel_stride, cache_line, run, runs), {}};
  }
  const auto& [b, row_step, column_step, depth, columns, target, panel_stride] = *args.unpacked;
  const T* from = b + column * column_step;
  T* to = target + index * panel_stride;
  if (hot<T> && column_step == 1 && args.rows >= tile_rows<T> && column + width <= columns) {
    const auto step = row_step * static_cast<std::ptrdiff_t>(sizeof(T));
    constexpr int line = (row_bytes<T> - 1) / (row_lines<T> - 1);  // to the last byte, wherever the row lies
    return {panel, column, ahead_of(args, from + width, line, step, depth), {from, row_step, to}};
  }
  pack<T>({from, row_step, column_step, depth, std::min(width, columns - column), to, panel_stride});
  return {panel, column, {}, {}};
}

template <class T>
void multiply(const GemmArgs<T>& args) {
  constexpr int width = panel_width<T>;
  for (int column = 0; column < args.columns; column += width) {
    const Columns<T> of = columns_at(args, column);
    int r = 0;
    for (; r + tile_rows<T> <= args.rows; r += tile_rows<T>) panel_rows<tile_rows<T>>(args, r, of);
    if constexpr (4 < tile_rows<T>) {
      for (; r + 4 <= args.rows; r += 4) panel_rows<4>(args, r, of);
    }
    if (r + 2 <= args.rows) {
      panel_rows<2>(args, r, of);
      r += 2;
    }
    if (r < args.rows) panel_rows<1>(args, r, of);
  }
}

template <class T>
constexpr GemmKernels<T> gemm_table = {panel_width<T>, tile_rows<T>, block_rows<T>, block_depth,
                                       block_size<T>,  multiply<T>,  pack<T>,       transpose<T>};

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
