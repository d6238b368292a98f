// kernels/gemm.h: products of blocks of matrices, on the micro-kernel of attention.
#pragma once

#include <cstddef>

#include <qkv/isa.h>

namespace qkv::kernels {

// target[j * target_stride + i] = source[i * source_stride + j] for i < lines, j < columns.
template <class T>
struct TransposeArgs {
  const T* source;
  std::ptrdiff_t source_stride;
  int lines, columns;
  T* target;
  std::ptrdiff_t target_stride;
};

// b, of any strides, to panels; see GemmArgs.
template <class T>
struct PackArgs {
  const T* b;
  std::ptrdiff_t row_step, column_step;
  int depth, columns;
  T* target;
  std::ptrdiff_t panel_stride;
};

// c = a b for a block, plus `added` if that is not null. Every element sums over depth in rising order, and what is
// added comes last.
template <class T>
struct GemmArgs {
  const T* a;  // [rows][a_stride]
  std::ptrdiff_t a_stride;
  int rows;
  const T*
      b;  // panels of `panel` columns: [columns / panel, rounded up][panel_stride], each [depth][panel], zeros behind
  std::ptrdiff_t panel_stride;
  int columns;
  int depth;
  T* c;  // [rows][c_stride]
  std::ptrdiff_t c_stride;
  const T* added;  // [rows][added_stride]: c itself for c += a b; a row with stride 0 for a bias
  std::ptrdiff_t added_stride;
  // Null, or what b's panels are to be filled with on the way. Then panel_stride may be 0: they are one and the same.
  const PackArgs<T>* unpacked;
};

template <class T>
struct GemmKernels {
  int panel;        // columns of a packed panel
  int tile_rows;    // rows of a that are multiplied at once
  int block_rows;   // rows of a that are multiplied with one panel after the other, at most,
  int block_depth;  // their depth, at most,
  int block_size;   // and their elements, at most, for them to stay in the second-level cache
  void (*multiply)(const GemmArgs<T>&);
  void (*pack)(const PackArgs<T>&);
  void (*transpose)(const TransposeArgs<T>&);
};
template <class T>
const GemmKernels<T>& gemm_kernels(Isa isa);

}  // namespace qkv::kernels
