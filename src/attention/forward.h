// attention/forward.h: runs all tasks of one call.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "attention/strategy.h"

namespace qkv {

template <class T>
void forward(const Problem& problem, const Strategy<T>& strategy, const Results& results);

// Bytes that `threads` threads working on the call need besides its inputs and results.
template <class T>
std::int64_t forward_bytes(const Problem& problem, const Strategy<T>& strategy, int threads);

// How many threads are worth waking for so many tasks: small calls stay on the caller's.
template <class T>
int useful_threads(const Problem& problem, const Strategy<T>& strategy, std::int64_t tasks);

}  // namespace qkv
