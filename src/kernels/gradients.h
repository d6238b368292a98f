// kernels/gradients.h: the backward pass of a block: weights again, the gradients of scores, and what they come to for
// queries, keys and values. See block.h for the layout of a block; panels only.
#pragma once

#include <cstddef>

#include <qkv/isa.h>

#include "kernels/block.h"

namespace qkv::kernels {

// Products with the rows of a panel, where something is done with each before it is stored; first <= j < last.
//
//   weigh  weights[j * lanes + r] = 2^(q_r . k_j - reference[r])
//   chain  slopes[j * lanes + r] = weight * factor * (dout_r . v_j + added[r]), and 0 where the weight is
template <class T>
struct RecallArgs {
  const T* queries;  // [depth][lanes]: q, scaled, or dout
  const T* keys;     // k or v: row j at keys + j * key_stride
  std::ptrdiff_t key_stride;
  int depth;
  int lanes;
  int first, last;
  const T* per_row;  // [lanes]: reference or added
  T* weights;        // read by chain
  T* slopes;
  T factor = 1;  // of chain
};

// The same where scores are not plain dot products, one step at a time, for all j < keys.
//
//   exponentials  weights = 2^(weights - reference[r])
//   scale         weights *= reference[r]
//   chain_any     slopes, which holds dout_r . v_j, becomes
//                 factor * (slopes + added[r] - entropy[r] ln(weight)), factor = multiplier[r], or the weight where
//                 multiplier is null, times args.factor; 0 where the weight is 0, unless keep_zeros is said and
//                 entropy[r] is 0
template <class T>
struct ChainArgs {
  T* weights;
  T* slopes;
  int lanes;
  int keys;
  const T* reference = nullptr;
  const T* added = nullptr;
  const T* entropy = nullptr;  // null: 0
  const T* multiplier = nullptr;
  bool keep_zeros = false;
  T factor = 1;  // of chain_any
};

// sums[j][c] += over panels and their rows of weights[j * lanes + r] * values[r][c], for j < keys.
template <class T>
struct GatherPanel {
  const T* weights;
  const T* values;  // in strips, as in PoolArgs: row r at values + r * strip
  int lanes, rows;
  int first, last;  // keys with a weight that is not zero; weights outside are read less than gather_keys from there
};
template <class T>
struct GatherArgs {
  const GatherPanel<T>* panels;
  int count;
  int keys;
  std::ptrdiff_t strip_stride;  // of values
  int width;                    // a multiple of the vector's length
  T* sums;                      // row j at sums + j * sum_stride, aligned
  std::ptrdiff_t sum_stride;
};

// The additive score: with t = tanh of a pair's projections, by exponentials or direct as in ScoreArgs,
//
//   dq[r] += slope (1 - t^2) / f over keys,   dk[j] += the same over rows,   dhidden += slope t over both
//
// where f is 4 by exponentials and 1 direct; it and the hidden weights are factors that the caller puts in afterwards.
// All rows are `stride` apart, aligned, with zeros behind the last hidden unit: `depth` is a multiple of two vectors.
// What is added behind it means nothing.
template <class T>
struct AdditiveGradientArgs {
  const T* slopes;  // [key_count][lanes]
  int lanes;
  int rows, key_count, depth;
  const T *queries, *keys;
  std::ptrdiff_t stride;
  T *dq, *dk, *dhidden;
};

// How fast the additive score changes where projections do, forwards: with the same t and f, for j < key_count
//
//   rates[j * lanes + r] = sum_e hidden[e] (1 - t^2) / f (dq[e] + dk[e])
template <class T>
struct AdditiveRateArgs {
  const T *queries, *query_rates;  // [depth][lanes]
  const T *keys, *key_rates;       // rows, key_stride and rate_stride apart
  std::ptrdiff_t key_stride, rate_stride;
  const T* hidden;
  int depth, lanes, key_count;
  T* rates;
};

// Kernels of the distance: slopes[i] times the derivative of the score by u^2, where squares[i] is u^2, i < count; of
// the kernel's logarithm, or of its value where by_value is said (compact kernels only). 0 at u = 0 where the
// derivative has a kink there; a slope of 0 stays 0, whatever u is; other pairs must be inside of the kernel's support.
template <class T>
struct DistanceGradientArgs {
  T* slopes;
  const T* squares;
  int count;  // a whole number of vectors
  DistanceKernel kernel;
  bool by_value;
};

template <class T>
struct GradientKernels {
  int group_panels;  // panels that are gathered together
  int block_keys;
  int gather_keys;  // of a tile, at most
  void (*weigh)(const RecallArgs<T>&);
  void (*chain)(const RecallArgs<T>&);
  void (*exponentials)(const ChainArgs<T>&);
  void (*scale)(const ChainArgs<T>&);
  void (*chain_any)(const ChainArgs<T>&);
  void (*gather)(const GatherArgs<T>&);
  void (*additive)(const AdditiveGradientArgs<T>&);
  void (*additive_direct)(const AdditiveGradientArgs<T>&);
  void (*additive_rates)(const AdditiveRateArgs<T>&);
  void (*additive_direct_rates)(const AdditiveRateArgs<T>&);
  void (*distance)(const DistanceGradientArgs<T>&);
};
template <class T>
const GradientKernels<T>& gradient_kernels(Isa isa);

}  // namespace qkv::kernels
