// kernels/gru.h: the gates of a gated recurrent unit, for the rows of one step; everything but the matrix products.
//
//   r = sigmoid(i_r + s_r)    z = sigmoid(i_z + s_z)    n = tanh(i_n + r s_n)    after = n + z (before - n)
//
// i is the input's part of a gate and s the state's, biases included. Rows do not depend on each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include <qkv/isa.h>

namespace qkv::kernels {

template <class T>
struct GruForwardArgs {
  int rows, width;
  T* gates;         // [rows][3][width]: i on entry; r, z, n on return
  const T* state;   // [rows][3][width]: s
  const T* before;  // [rows][width]
  T* hidden;        // [rows][width]: s_n, for the backward pass
  T* after;         // [rows][after_stride]
  std::ptrdiff_t after_stride;
  T* next;  // [continuing][width]: `after` once more, for the rows that have a next step
  int continuing;
};

// From the gradient by `after`: dn = dafter (1 - z), dz = dafter (before - n), and on through the functions.
template <class T>
struct GruBackwardArgs {
  int rows, width;
  const T* gates;  // as forward left them
  const T* hidden;
  const T* before;
  const T* upstream;  // [rows][upstream_stride]: of the loss by `after`, or null
  std::ptrdiff_t upstream_stride;
  T* carry;   // [rows][width]: what later steps add to that; becomes the part of dbefore that goes by no product
  T* slopes;  // [rows][4][width]: ds_n, di_r = ds_r, di_z = ds_z, di_n
};

template <class T>
struct GruKernels {
  void (*forward)(const GruForwardArgs<T>&);
  void (*backward)(const GruBackwardArgs<T>&);
};
template <class T>
const GruKernels<T>& gru_kernels(Isa isa);

// Dropout of one row, in place: element i is 0 where number i of the stream is below the threshold, else times factor.
template <class T>
void drop_row(T* row, std::int64_t width, std::uint64_t key, std::uint32_t threshold, T factor);

}  // namespace qkv::kernels
