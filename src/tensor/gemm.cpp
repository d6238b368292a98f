// tensor/gemm.cpp: matrix products: checks, packing, and the loops over blocks.
#include <qkv/gemm.h>

#include <algorithm>
#include <limits>
#include <string>

#include <qkv/error.h>

#include "base/aligned.h"
#include "base/checked.h"
#include "base/message.h"
#include "base/parallel.h"
#include "kernels/gemm.h"

namespace qkv {
namespace {

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Columns of one task: wide enough that the rows' packing is paid for, and their packed block stays in the third-level
// cache.
constexpr std::int64_t strip_columns = 1024;
constexpr std::int64_t strip_rows = 1024;
constexpr std::int64_t few_rows_columns = 256;
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

Scratch& packed_rows() {
  thread_local Scratch scratch;
  return scratch;
}
Scratch& packed_columns() {
  thread_local Scratch scratch;
  return scratch;
}

// Where a strip's panels come from: packed before, or packed here, block of depth by block of depth.
template <class T>
struct Second {
  View matrix;      // to be packed; absent if it is packed
  const T* panels;  // packed
};

template <class T>
void multiply(const View& a, const Second<T>& b, const MutableView& c, const Extents& e, const GemmOptions& options,
              Isa isa) {
  const auto& kernels = kernels::gemm_kernels<T>(isa);
  if (e.K == 0 && !options.accumulate) {
    for (std::int64_t i = 0; i < e.M; ++i) std::fill_n(c.as<T>() + i * c.stride(0), e.N, T(0));
  }
  const double work = static_cast<double>(e.M) * static_cast<double>(e.N) * static_cast<double>(e.K);
  const int allowed = resolve_threads(options.threads, "gemm");
  const int threads = static_cast<int>(std::clamp(work / worth_a_thread, 1.0, static_cast<double>(allowed)));
  // Strips for several threads are narrower, so that all are busy to the end.
  std::int64_t width = threads > 1 ? std::min(strip_columns, divide_up(e.N, 4 * threads)) : strip_columns;
  // Few rows: what is packed is used once, so it should not leave the second-level cache.
  if (b.matrix && e.M <= kernels.block_rows) width = std::min(width, few_rows_columns);
  width = divide_up(width, kernels.panel) * kernels.panel;
  const std::int64_t across = divide_up(e.N, width), down = divide_up(e.M, strip_rows);

  parallel_for(across * down, threads, [&](std::int64_t task) {
    const std::int64_t column = task / down * width, columns = std::min(width, e.N - column);
    const std::int64_t row = task % down * strip_rows, rows = std::min(strip_rows, e.M - row);
    const std::int64_t panels = divide_up(columns, kernels.panel);
    T* block = static_cast<T*>(
        packed_rows().get(sizeof(T) * static_cast<std::size_t>(kernels.block_rows * kernels.block_depth)));
    for (std::int64_t k = 0; k < e.K; k += kernels.block_depth) {
      const std::int64_t depth = std::min<std::int64_t>(kernels.block_depth, e.K - k);
      const T* strip = nullptr;
      std::int64_t panel_stride = 0;
      if (b.matrix) {
        panel_stride = depth * kernels.panel;
        T* to = static_cast<T*>(packed_columns().get(sizeof(T) * static_cast<std::size_t>(panels * panel_stride)));
        kernels.pack({b.matrix.template as<T>() + k * b.matrix.stride(0) + column * b.matrix.stride(1),
                      b.matrix.stride(0), b.matrix.stride(1), static_cast<int>(depth), static_cast<int>(columns), to,
                      panel_stride});
        strip = to;
      } else {
        panel_stride = e.K * kernels.panel;
        strip = b.panels + column / kernels.panel * panel_stride + k * kernels.panel;
      }
      for (std::int64_t i = 0; i < rows; i += kernels.block_rows) {
        const std::int64_t block_rows = std::min<std::int64_t>(kernels.block_rows, rows - i);
        for (std::int64_t r = 0; r < block_rows; ++r) {
          const T* from = a.as<T>() + (row + i + r) * a.stride(0) + k * a.stride(1);
          T* to = block + r * depth;
          if (a.stride(1) == 1) {
            std::copy_n(from, depth, to);
          } else {
            for (std::int64_t j = 0; j < depth; ++j) to[j] = from[j * a.stride(1)];
          }
        }
        kernels.multiply({block, depth, static_cast<int>(block_rows), strip, panel_stride, static_cast<int>(columns),
                          static_cast<int>(depth), c.as<T>() + (row + i) * c.stride(0) + column, c.stride(0),
                          k > 0 || options.accumulate});
      }
    }
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
    panels_ = Tensor(Shape{divide_up(columns_, kernels.panel), rows_, kernels.panel}, b.dtype());
    kernels.pack({b.as<T>(), b.stride(0), b.stride(1), static_cast<int>(rows_), static_cast<int>(columns_),
                  panels_.values<T>().data(), rows_ * kernels.panel});
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
