// qkv/ops.h: what can be computed with variables, and differentiated.
//
// All variables of a call have one dtype, float32 or float64, and so has the result. Any strides are taken. Results are
// the same, bit for bit, for any number of threads. All throw ShapeError and DtypeError, naming the shapes involved.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/autograd.h>
#include <qkv/export.h>
#include <qkv/tensor.h>

namespace qkv {

// y = x W^T + b, as PyTorch's.
//
//   x  [..., in]
//   W  [out, in]
//   b  [out], or absent
//   y  [..., out]
QKV_API Variable linear(const Variable& x, const Variable& W, const Variable& b = {});

// Element by element. Shapes are broadcast as NumPy's: aligned at the right, an extent of 1 is repeated.
QKV_API Variable add(const Variable& a, const Variable& b);
QKV_API Variable sub(const Variable& a, const Variable& b);
QKV_API Variable mul(const Variable& a, const Variable& b);
QKV_API Variable div(const Variable& a, const Variable& b);

inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator-(const Variable& a, const Variable& b) { return sub(a, b); }
inline Variable operator*(const Variable& a, const Variable& b) { return mul(a, b); }
inline Variable operator/(const Variable& a, const Variable& b) { return div(a, b); }

// The sum, or the mean, over all axes (a result of rank 0) or over some. Negative axes count from the last; with
// keep_axes those that were summed over stay, with extent 1. Sums are taken in double precision. The mean over nothing
// is NaN.
struct SumOptions {
  std::vector<int> axes = {};  // {} is all
  bool keep_axes = false;
};
QKV_API Variable sum(const Variable& x, const SumOptions& options = {});
QKV_API Variable mean(const Variable& x, const SumOptions& options = {});

}  // namespace qkv
