// base/blocks.h: long ranges in blocks of a fixed size, for several threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include <qkv/threads.h>

#include "base/divide_up.h"
#include "base/parallel.h"

namespace qkv {

// Calls work(first, count) for the blocks of 0 .. total - 1. Where they begin depends on `block` alone, so a sum per
// block has the same bits for any number of threads.
template <class Work>
void for_blocks(std::int64_t total, std::int64_t block, Work work) {
  const std::int64_t blocks = divide_up(total, block);
  const auto one = [&](std::int64_t i) { work(i * block, std::min(block, total - i * block)); };
  if (blocks <= 1) {
    if (total > 0) one(0);
    return;
  }
  parallel_for(blocks, thread_count(), one);
}

}  // namespace qkv
