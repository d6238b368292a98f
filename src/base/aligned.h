// base/aligned.h: aligned memory, for tensors and for the scratch of kernels.
#pragma once

#include <cstddef>
#include <utility>

namespace qkv {

inline constexpr std::size_t alignment = 64;

// Memory aligned to 64 bytes. From 4 MB up it starts at a 2 MB boundary and asks for 2 MB pages. From 64 kB up it may
// be memory that this thread freed before: it is kept when it is freed, up to 64 MB a thread, because fresh pages of
// the system cost as much as writing them several times.
//
// Zeroed (from 4 MB up always fresh, so that what is not touched costs nothing), or not. Throw std::bad_alloc.
// bytes = 0 gives a pointer that may be freed and not read.
void* allocate_aligned(std::size_t bytes);
void* allocate_dirty(std::size_t bytes);
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

// Memory of one call, not zeroed; the thread keeps it for its next one. Moves.
class Reused {
 public:
  Reused() = default;
  explicit Reused(std::size_t bytes) : memory_(allocate_dirty(bytes)) {}
  ~Reused() { free_aligned(memory_); }
  Reused(Reused&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  Reused& operator=(Reused&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }

  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

}  // namespace qkv
