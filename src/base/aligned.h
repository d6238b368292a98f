// base/aligned.h: aligned memory, for tensors and for the scratch of kernels.
#pragma once

#include <cstddef>
#include <memory>

namespace qkv {

inline constexpr std::size_t alignment = 64;

// Zeroed memory, aligned to 64 bytes. From 4 MB up it starts at a 2 MB boundary and asks for 2 MB pages.
// Throws std::bad_alloc. bytes = 0 gives a pointer that may be freed and not read.
void* allocate_aligned(std::size_t bytes);
void free_aligned(void* memory);

// Memory that grows and never shrinks, kept from call to call: one per thread, for what a kernel needs besides its
// arguments. Contents do not survive a grow.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { free_aligned(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* get(std::size_t bytes);  // at least so many, aligned to 64 bytes

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace qkv
