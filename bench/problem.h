// bench/problem.h: queries, keys and values with whatever options, to be solved and checked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <qkv/attend.h>
#include <qkv/tensor.h>

#include "bench/cases.h"

namespace qkv::bench {

// Everything that one case computes with.
struct Problem {
  Tensor q, k, v, out;
  std::vector<Tensor> others;  // what options look at
  AttendOptions options;

  void solve() { attend_into(q, k, v, {.out = out}, options); }
  std::string check();
};

Tensor random_tensor(const Shape& shape, std::uint64_t seed, float size = 1);

// H heads of T queries and keys, D wide, in [-size, size] and [-1, 1].
std::shared_ptr<Problem> square_problem(std::int64_t H, std::int64_t T, std::int64_t D, int threads, float size = 1);

// A case that solves it, with the work of a product with k and one with v.
Case square_case(const std::string& name, const std::shared_ptr<Problem>& problem);

// Heads that make a call last some milliseconds, so that it can fall between two bursts of noise.
std::int64_t heads_for(std::int64_t T);

}  // namespace qkv::bench
