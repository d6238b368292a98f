// tensor/gemm.cpp: matrix products: checks, packing, and the loops over blocks.
#include <qkv/gemm.h>

#include <algorithm>
#include <limits>
#include <string>

#include <qkv/error.h>

#include "base/aligned.h"
#include "base/divide_up.h"
#include "base/message.h"
#include "base/parallel.h"
#include "kernels/gemm.h"

namespace qkv {
namespace {

// Rows and columns of one task, at most.
constexpr std::int64_t strip_columns = 2048;
constexpr std::int64_t strip_rows = 2048;
// Below so many multiply-adds a second thread costs more than it brings.
constexpr double worth_a_thread = 2e6;

void require_matrix_dtype(const View& view, const char* name) {
  if (view.dtype() != Dtype::float32 && view.dtype() != Dtype::float64) {
    throw DtypeError(message("gemm: ", name, " must be float32 or float64, not ", name_of(view.dtype())));
  }
}

struct Extents {
  std::int64_t M, K, N;
};

Extents check(const View& a, std::int64_t K, std::int64_t N, Dtype b_dtype, const std::string& b_text,
              const MutableView& c) {
  const auto refuse = [&](const char* rule) {
    throw ShapeError(message("gemm: ", rule, ": a ", a.shape().text(), ", b ", b_text, ", c ", c.shape().text()));
  };
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() / 2;
  if (K > most || N > most) refuse("K and N beyond 2^30 are not supported");
  if (a.rank() != 2 || c.rank() != 2) refuse("a [M, K], b [K, N] and c [M, N] must be matrices");
  if (a.extent(1) != K) refuse("a [M, K] and b [K, N] must share K");
  if (c.extent(0) != a.extent(0) || c.extent(1) != N) refuse("c must be [M, N]");
  if (c.extent(1) > 1 && c.stride(1) != 1) refuse("the last axis of c must be dense");
  require_matrix_dtype(a, "a");
  if (a.dtype() != b_dtype || c.dtype() != b_dtype) {
    throw DtypeError(message("gemm: a, b and c must have one dtype; a is ", name_of(a.dtype()), ", b ",
                             name_of(b_dtype), ", c ", name_of(c.dtype())));
  }
  return {a.extent(0), K, N};
}

void require_bias(const GemmOptions& options, std::int64_t N, Dtype dtype) {
  const View& bias = options.bias;
  if (!bias) return;
  if (bias.rank() != 1 || bias.extent(0) != N || !bias.is_dense() || bias.dtype() != dtype) {
    throw ShapeError(message("gemm: the bias must be a dense ", name_of(dtype), " ", Shape{N}.text(), ", not ",
                             name_of(bias.dtype()), " ", bias.shape().text(), bias.is_dense() ? "" : " with gaps"));
  }
  if (options.accumulate) throw OptionError("gemm: a bias is for c = a b + bias; it does not go with accumulate");
}

Scratch& packed_rows() {
  thread_local Scratch scratch;
  return scratch;
}
Scratch& packed_columns() {
  thread_local Scratch scratch;
  return scratch;
}

// Where a strip's panels come from: packed before, or packed here. Packed they lie block of depth by block of depth,
// and in a block panel by panel without gaps, in the order in which they are read.
template <class T>
struct Second {
  View matrix;      // to be packed; absent if it is packed
  const T* panels;  // packed
};

template <class T>
std::int64_t padded(std::int64_t columns, const kernels::GemmKernels<T>& kernels) {
  return divide_up(columns, kernels.panel) * kernels.panel;
}

// The blocks of a that are multiplied: of equal depth, as few as there may be.
struct Blocks {
  template <class T>
  Blocks(std::int64_t K, const kernels::GemmKernels<T>& kernels) {
    constexpr std::int64_t unit = 16;
    const std::int64_t count = std::max<std::int64_t>(divide_up(K, kernels.block_depth), 1);
    depth = std::max(divide_up(divide_up(K, count), unit) * unit, unit);
    rows =
        std::min<std::int64_t>(kernels.block_size / depth / kernels.tile_rows * kernels.tile_rows, kernels.block_rows);
  }
  std::int64_t depth, rows;
};

// How a block of b becomes panels.
template <class T>
kernels::PackArgs<T> packing(const View& b, std::int64_t row, std::int64_t depth, std::int64_t column,
                             std::int64_t columns, T* target, std::int64_t panel_stride) {
  return {b.as<T>() + row * b.stride(0) + column * b.stride(1),
          b.stride(0),
          b.stride(1),
          static_cast<int>(depth),
          static_cast<int>(columns),
          target,
          panel_stride};
}

// Rows and columns of one task.
struct Region {
  std::int64_t row, rows, column, columns;
};

// Rows of a, `depth` elements each, `stride` apart. They come from far away and lie apart, where the processor does not
// look ahead by itself (2 points of the peak).
template <class T>
void copy_rows(const View& a, std::int64_t row, std::int64_t rows, std::int64_t k, std::int64_t depth,
               const kernels::GemmKernels<T>& kernels, T* target, std::int64_t stride) {
  if (a.stride(0) == 1 && a.stride(1) != 1) {  // a transposed matrix
    kernels.transpose({a.as<T>() + row + k * a.stride(1), a.stride(1), static_cast<int>(depth), static_cast<int>(rows),
                       target, stride});
    return;
  }
  constexpr std::int64_t rows_ahead = 3, line = 64 / sizeof(T);
  for (std::int64_t r = 0; r < rows; ++r, target += stride) {
    const T* from = a.as<T>() + (row + r) * a.stride(0) + k * a.stride(1);
    if (a.stride(1) == 1) {
      for (std::int64_t j = 0; j < depth; j += line) __builtin_prefetch(from + rows_ahead * a.stride(0) + j);
      std::copy_n(from, depth, target);
    } else {
      for (std::int64_t j = 0; j < depth; ++j) target[j] = from[j * a.stride(1)];
    }
  }
}

// Block of depth by block of depth: b's is packed, unless it is, and stays in the third-level cache while blocks of a,
// one after the other, stay in the second-level one.
template <class T>
void multiply_region(const View& a, const Second<T>& b, const MutableView& c, const Extents& e, const Region& region,
                     bool accumulate, const T* bias, const kernels::GemmKernels<T>& kernels) {
  const auto bytes = [](std::int64_t count) { return sizeof(T) * static_cast<std::size_t>(count); };
  const Blocks blocks(e.K, kernels);
  // Rows a cache line more than their depth apart do not fall on a few sets of the first-level cache.
  const std::int64_t stride = blocks.depth + static_cast<std::int64_t>(64 / sizeof(T));
  T* block = static_cast<T*>(packed_rows().get(bytes(blocks.rows * stride)));
  for (std::int64_t k = 0; k < e.K; k += blocks.depth) {
    const std::int64_t depth = std::min(blocks.depth, e.K - k);
    // Panels that are multiplied with one block of a only are packed on the way, into the same place. On the way
    // go others, too, whose rows are two cache lines; shorter ones are read better several panels at once.
    const bool once = b.matrix && region.rows <= blocks.rows;
    const bool on_the_way = once || (b.matrix && bytes(kernels.panel) >= 128);
    const std::int64_t panel_stride = once ? 0 : depth * kernels.panel;
    kernels::PackArgs<T> unpacked{};
    const T* strip;
    if (b.matrix) {
      const std::int64_t columns = once ? kernels.panel : padded(region.columns, kernels);
      T* to = static_cast<T*>(packed_columns().get(bytes(columns * depth)));
      unpacked = packing(b.matrix, k, depth, region.column, region.columns, to, panel_stride);
      if (!on_the_way) kernels.pack(unpacked);
      strip = to;
    } else {
      strip = b.panels + k * padded(e.N, kernels) + region.column * depth;
    }
    for (std::int64_t i = 0; i < region.rows; i += blocks.rows) {
      const std::int64_t rows = std::min(blocks.rows, region.rows - i);
      copy_rows(a, region.row + i, rows, k, depth, kernels, block, stride);
      T* to = c.as<T>() + (region.row + i) * c.stride(0) + region.column;
      const bool is_first = k == 0 && !accumulate;
      kernels.multiply({block, stride, static_cast<int>(rows), strip, panel_stride, static_cast<int>(region.columns),
                        static_cast<int>(depth), to, c.stride(0),
                        !is_first ? to
                        : bias    ? bias + region.column
                                  : nullptr,
                        is_first ? 0 : c.stride(0), on_the_way && i == 0 ? &unpacked : nullptr});
    }
  }
}

template <class T>
void multiply(const View& a, const Second<T>& b, const MutableView& c, const Extents& e, const GemmOptions& options,
              Isa isa) {
  const auto& kernels = kernels::gemm_kernels<T>(isa);
  require_bias(options, e.N, c.dtype());
  const T* bias = options.bias.as<T>();
  if (e.K == 0 && !options.accumulate) {
    for (std::int64_t i = 0; i < e.M; ++i) {
      T* row = c.as<T>() + i * c.stride(0);
      bias != nullptr ? std::copy_n(bias, e.N, row) : std::fill_n(row, e.N, T(0));
    }
  }
  const double work = static_cast<double>(e.M) * static_cast<double>(e.N) * static_cast<double>(e.K);
  const int allowed = resolve_threads(options.threads, "gemm");
  const int threads = static_cast<int>(std::clamp(work / worth_a_thread, 1.0, static_cast<double>(allowed)));
  // Strips for several threads are narrower, so that all are busy to the end.
  const std::int64_t width =
      padded(threads > 1 ? std::min(strip_columns, divide_up(e.N, 4 * threads)) : strip_columns, kernels);
  const std::int64_t across = divide_up(e.N, width), down = divide_up(e.M, strip_rows);
  parallel_for(across * down, threads, [&](std::int64_t task) {
    const std::int64_t column = task / down * width, row = task % down * strip_rows;
    multiply_region(a, b, c, e, {row, std::min(strip_rows, e.M - row), column, std::min(width, e.N - column)},
                    options.accumulate, bias, kernels);
  });
}

}  // namespace

void gemm(View a, View b, MutableView c, const GemmOptions& options) {
  if (b.rank() != 2) throw ShapeError(message("gemm: b must be a matrix [K, N], not ", b.shape().text()));
  require_matrix_dtype(b, "b");
  const Extents extents = check(a, b.extent(0), b.extent(1), b.dtype(), b.shape().text(), c);
  if (b.dtype() == Dtype::float64) {
    multiply<double>(a, {b, nullptr}, c, extents, options, current_isa());
  } else {
    multiply<float>(a, {b, nullptr}, c, extents, options, current_isa());
  }
}

PackedMatrix::PackedMatrix(View b) : isa_(current_isa()) {
  if (b.rank() != 2) throw ShapeError(message("PackedMatrix: b must be a matrix [K, N], not ", b.shape().text()));
  require_matrix_dtype(b, "b");
  rows_ = b.extent(0);
  columns_ = b.extent(1);
  const auto fill = [&]<class T>(T) {
    const auto& kernels = kernels::gemm_kernels<T>(isa_);
    panels_ = Tensor(Shape{rows_, padded(columns_, kernels)}, b.dtype());
    const std::int64_t step = Blocks(rows_, kernels).depth;
    for (std::int64_t k = 0; k < rows_; k += step) {
      const std::int64_t depth = std::min(step, rows_ - k);
      T* to = panels_.values<T>().data() + k * padded(columns_, kernels);
      kernels.pack(packing(b, k, depth, 0, columns_, to, depth * kernels.panel));
    }
  };
  b.dtype() == Dtype::float64 ? fill(0.0) : fill(0.0f);
}

void gemm(View a, const PackedMatrix& b, MutableView c, const GemmOptions& options) {
  const Extents extents = check(a, b.rows(), b.columns(), b.dtype(), Shape{b.rows(), b.columns()}.text(), c);
  if (b.dtype() == Dtype::float64) {
    multiply<double>(a, {{}, b.panels().as<double>()}, c, extents, options, b.isa());
  } else {
    multiply<float>(a, {{}, b.panels().as<float>()}, c, extents, options, b.isa());
  }
}

}  // namespace qkv
