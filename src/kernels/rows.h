// kernels/rows.h: small loops over rows of numbers that are hot enough to be compiled per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include <qkv/isa.h>

#include "kernels/block.h"

namespace qkv::kernels {

// What a table of values added to scores holds; see survey.
enum Found : unsigned { found_excluded = 1, found_kept = 2, found_nonzero = 4 };

template <class T>
struct RowKernels {
  // target[i] += bias[i] * factor; what comes of finite numbers stays finite.
  void (*add_bias)(const T* bias, int count, T factor, T* target);
  // target[i] = -inf where flags[i] != 0 differs from kept.
  void (*exclude)(const std::uint8_t* flags, bool kept, int count, T* target);
  // Which of Found occur: -inf is excluded, all else is kept; a kept value may be nonzero. seen[i] becomes 0 where
  // row[i] is kept.
  unsigned (*survey)(const T* row, int count, T* seen);
  // Bit r of words[j], r < rows <= 64, j < count, is the sign of row[r * stride + j].
  void (*gather_signs)(const T* row, std::ptrdiff_t stride, int rows, int count, RowBits* words);
  // The same where flags[r * stride + j] != 0 differs from kept.
  void (*gather_flags)(const std::uint8_t* flags, std::ptrdiff_t stride, bool kept, int rows, int count,
                       RowBits* words);
  // target[i] = source[i] * factor
  void (*scale)(const T* source, int count, T factor, T* target);
  // target[i] = x * factor, x = (source[i] - centre[i]) * factors[i], where factors may be null (1); returns the sum of
  // x^2. The target may be the source or the centre.
  T (*centred)(const T* source, const T* centre, const T* factors, T factor, int count, T* target);
  // The sum of a[i] * b[i].
  T (*product)(const T* a, const T* b, int count);
  // target[i] = 2^(source[i] * factor), for arguments below 127 (float), 1023 (double).
  void (*exponentials)(const T* source, std::int64_t count, T factor, T* target);
  // The largest magnitude; NaN is passed over.
  T (*largest)(const T* values, std::int64_t count);
  // Whether all are finite.
  bool (*finite)(const T* values, std::int64_t count);
};
template <class T>
const RowKernels<T>& row_kernels(Isa isa);
template <class T>
const RowKernels<T>& row_kernels() {
  return row_kernels<T>(current_isa());
}

}  // namespace qkv::kernels
