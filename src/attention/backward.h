// attention/backward.h: runs the backward pass of one call, on what its score compares.
#pragma once

#include <cstdint>

#include "attention/block_gradients.h"

namespace qkv {

// Where products go: all T, [B, H, Tq, width], [B, key heads, Tk, width], [B, Hk, Tk, Dv]. Absent: not wanted.
struct ProductPlace {
  MutableView rows;
  bool add = false;  // to what is there; else it is written whole, where there are queries and keys
};
struct ProductGradients {
  ProductPlace dq, dk, dv;
  double factor = 1;  // of dq and dk
};

// dq = sum_j slope_ij k_j, dk = sum_i slope_ij q_i, dv = sum_i weight_ij dout_i, over the rows that `task` says, and
// the sums over pairs, per query head.
//
// A task is a range of keys of one key head: it owns their dk and dv, and goes through all queries that see them.
// Tasks that share queries add to dq in the order of their ranges, each waiting for the one before; they go through
// the queries in the same order, so that none waits long. Nothing depends on the number of threads.
template <class T>
std::vector<PairSums> backward(const GradientTask<T>& task, const ProductGradients& to);

}  // namespace qkv
