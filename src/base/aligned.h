// base/aligned.h: aligned memory, for tensors and for the scratch of kernels.
#pragma once

#include <cstddef>
#include <utility>

namespace qkv {

inline constexpr std::size_t alignment = 64;

// Zeroed memory, aligned to 64 bytes. From 4 MB up it starts at a 2 MB boundary and asks for 2 MB pages.
// Throws std::bad_alloc. bytes = 0 gives a pointer that may be freed and not read.
void* allocate_aligned(std::size_t bytes);
// The same, not zeroed. From 4 MB up it may be memory that this thread freed before: what was got here is kept when it
// is freed, up to 64 MB a thread, because fresh pages cost as much as writing them twice.
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

// Memory of one call that the thread keeps for its next one: fresh pages from the system cost more than much of what is
// done in them. Not zeroed. Moves; gives its memory back to whatever thread it ends on.
class Reused {
 public:
  Reused() = default;
  explicit Reused(std::size_t bytes);  // aligned to 64 bytes
  ~Reused();
  Reused(Reused&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Reused& operator=(Reused&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace qkv
