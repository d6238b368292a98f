// bench/peak.h: the two limits of a machine that attention is compared with, by the current instruction set.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace qkv::bench {

// Something that does a known amount of work at the highest rate the machine has. Its rate is work / best time.
struct Peak {
  double work;  // of one call: floating-point operations, or bytes
  std::function<void()> call;
};

// Multiply-adds on registers alone, on so many threads at once. A multiply-add counts as two operations.
Peak fma_peak(int threads);

// Reads the memory once, on so many threads, as 1, 2, 4 and 8 streams a thread. The best of the four is the limit:
// one stream alone reads a quarter less on some machines. `memory` must outlive the peaks.
std::vector<Peak> read_peaks(std::span<const std::byte> memory, int threads);

}  // namespace qkv::bench
