// qkv/gemm.h: matrix products, with the second factor packed on the way or once for many products.
#pragma once

#include <cstdint>

#include <qkv/export.h>
#include <qkv/isa.h>
#include <qkv/tensor.h>

namespace qkv {

struct GemmOptions {
  bool accumulate = false;  // c += a b instead of c = a b
  View bias = {};           // [N], dense: added to every row; not with accumulate
  int threads = 0;          // at most so many; 0 is what thread_count() says
};

// c = a b.
//
//   a  [M, K]    any strides
//   b  [K, N]    any strides; a transposed matrix is b.swapped(0, 1)
//   c  [M, N]    last axis dense; overlaps neither a nor b
//
// All float32 or all float64. Every element sums over K in one order, whatever M, N, the packing or the number of
// threads, so a row's result does not depend on the rows beside it. K = 0 gives zeros. Throws ShapeError, DtypeError,
// OptionError.
QKV_API void gemm(View a, View b, MutableView c, const GemmOptions& options = {});

// The second factor, packed once; it owns its copy. Packed for the instruction set in use when it was made, which its
// products then use too.
class QKV_API PackedMatrix {
 public:
  PackedMatrix() = default;
  explicit PackedMatrix(View b);  // [K, N], any strides

  std::int64_t rows() const { return rows_; }        // K
  std::int64_t columns() const { return columns_; }  // N
  Dtype dtype() const { return panels_.dtype(); }
  View panels() const { return panels_; }  // the packed elements, in an order of the library's own
  Isa isa() const { return isa_; }

 private:
  Tensor panels_;
  std::int64_t rows_ = 0, columns_ = 0;
  Isa isa_ = Isa::baseline;
};
QKV_API void gemm(View a, const PackedMatrix& b, MutableView c, const GemmOptions& options = {});

}  // namespace qkv
