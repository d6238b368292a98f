// kernels/block_data.h: blocks of scores for the tests of kernels: their memory, their sizes, their naive sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/isa.h>

#include "base/aligned.h"
#include "kernels/block.h"
#include "support/isas.h"
#include "support/random.h"

namespace qkv::test {

// Memory as kernels expect it. Exactly as long as said: the address sanitizer sees what a kernel does beyond.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>& /*other*/) {}
  T* allocate(std::size_t count) { return static_cast<T*>(allocate_aligned(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t /*count*/) { free_aligned(memory); }
  bool operator==(const AlignedAllocator&) const { return true; }
};
template <class T>
using Aligned = std::vector<T, AlignedAllocator<T>>;

template <class T>
inline constexpr T infinity = std::numeric_limits<T>::infinity();
template <class T>
inline constexpr T nan = std::numeric_limits<T>::quiet_NaN();
template <class T>
inline constexpr double epsilon = static_cast<double>(std::numeric_limits<T>::epsilon());

// On both sides of vectors, of decode_pad and of blocks.
inline constexpr int key_counts[] = {0, 1, 2, 3, 15, 16, 17, 33, 192, 256};

// The numbers of lanes that a block may have on the current instruction set.
inline const std::vector<int> decode_lanes = {1, 2, 4, 8};
template <class T>
std::vector<int> panel_lanes() {
  const auto& kernels = kernels::panel_kernels<T>(current_isa());
  std::vector<int> lanes;
  for (int vectors = 1; vectors <= kernels.max_vectors; ++vectors) lanes.push_back(vectors * kernels.vector);
  return lanes;
}
template <class T>
std::vector<int> all_lanes() {
  std::vector<int> lanes = decode_lanes;
  for (int vectors = 1; vectors <= 3; ++vectors) {
    lanes.push_back(vectors * kernels::panel_kernels<T>(current_isa()).vector);
  }
  std::sort(lanes.begin(), lanes.end());
  lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());
  return lanes;
}

// How many scores a block of so many keys has room for: up to a whole number of decode_pad keys where a vector holds
// several keys, and nothing to spare where it does not.
template <class T>
std::size_t room(int lanes, int keys) {
  const bool has_spare = lanes < kernels::panel_kernels<T>(current_isa()).vector;
  const int pad = has_spare ? kernels::decode_pad : 1;
  return static_cast<std::size_t>((keys + pad - 1) / pad * pad * lanes);
}

// An array per row, repeated to fill a vector.
template <class T>
Aligned<T> repeated(const std::vector<T>& rows) {
  const auto vector = static_cast<std::size_t>(kernels::panel_kernels<T>(current_isa()).vector);
  Aligned<T> all(std::max(rows.size(), vector));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = rows[i % rows.size()];
  return all;
}

template <class T>
Aligned<T> random_numbers(int count, std::uint64_t seed) {
  Random random(seed);
  Aligned<T> numbers(static_cast<std::size_t>(count));
  for (T& number : numbers) number = static_cast<T>(random.normal());
  return numbers;
}

// The place of row r and key j.
inline std::size_t place(int lanes, int j, int r) { return static_cast<std::size_t>(j * lanes + r); }

// Runs body(lanes, keys) for every number of lanes in a list that `lanes` makes, and every number of keys.
template <class Lanes, class Body>
void for_every_block(Lanes lanes, Body body) {
  on_every_isa([&] {
    for (const int count : lanes()) {
      for (const int keys : key_counts) {
        SCOPED_TRACE(std::to_string(count) + " lanes, " + std::to_string(keys) + " keys");
        body(count, keys);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

// Bit for bit, which is more than ==, but one NaN is as good as another.
template <class T>
bool same_number(T a, T b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

}  // namespace qkv::test
