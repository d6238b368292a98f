// base/aligned.cpp: aligned memory, for tensors and for the scratch of kernels.
#include "base/aligned.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

namespace qkv {
namespace {

constexpr std::size_t small_page = 4096;
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t huge_from = std::size_t{4} << 20;
// What malloc would give back to the system sooner or later, and get anew.
constexpr std::size_t kept_from = std::size_t{64} << 10;

// Stands in the 64 bytes before the memory that is handed out and says how to give it back.
struct Origin {
  void* base;
  std::size_t mapped;   // bytes to unmap from base; 0: base came from aligned_alloc
  std::size_t keep_as;  // bytes that may be kept for the next one; 0: to be freed
};
static_assert(sizeof(Origin) <= alignment);

Origin* origin_of(void* memory) { return reinterpret_cast<Origin*>(static_cast<char*>(memory) - alignment); }

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Fresh pages of the system are zero already. The Origin lies in a small page of its own before the 2 MB boundary.
void* allocate_huge(std::size_t bytes) {
  const std::size_t mapped = round_up(bytes, small_page) + huge_page + small_page;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  const std::size_t address = reinterpret_cast<std::uintptr_t>(base);
  void* memory = static_cast<char*>(base) + (round_up(address + small_page, huge_page) - address);
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: a system without huge pages still gives memory
  *origin_of(memory) = {base, mapped, 0};
  return memory;
}

void give_back(void* memory) {
  const Origin origin = *origin_of(memory);
  if (origin.mapped == 0) {
    std::free(origin.base);
  } else {
    munmap(origin.base, origin.mapped);
  }
}

// Pieces that a thread has freed, for the next that are as large.
class Spares {
 public:
  static constexpr std::size_t most_pieces = 32, most_bytes = std::size_t{64} << 20;

  ~Spares() {
    for (std::size_t i = 0; i < count_; ++i) give_back(pieces_[i]);
    ended = true;
  }

  // The smallest that is large enough, and not much larger; null if there is none.
  void* take(std::size_t bytes) {
    std::size_t best = count_;
    for (std::size_t i = 0; i < count_; ++i) {
      const std::size_t size = size_of_piece(i);
      if (size >= bytes && size <= bytes + bytes / 4 && (best == count_ || size < size_of_piece(best))) best = i;
    }
    return best == count_ ? nullptr : remove(best);
  }

  // The oldest make room.
  void put(void* memory) {
    const std::size_t bytes = origin_of(memory)->keep_as;
    if (bytes > most_bytes) return give_back(memory);
    while (count_ == most_pieces || bytes_ + bytes > most_bytes) give_back(remove(0));
    pieces_[count_++] = memory;
    bytes_ += bytes;
  }

  static thread_local bool ended;  // what is freed after it goes back to the system

 private:
  std::size_t size_of_piece(std::size_t i) const { return origin_of(pieces_[i])->keep_as; }
  void* remove(std::size_t i) {
    void* memory = pieces_[i];
    bytes_ -= size_of_piece(i);
    std::copy(pieces_ + i + 1, pieces_ + count_, pieces_ + i);
    --count_;
    return memory;
  }

  void* pieces_[most_pieces];
  std::size_t count_ = 0, bytes_ = 0;
};
thread_local bool Spares::ended = false;

Spares& spares() {
  thread_local Spares pieces;
  return pieces;
}

void* spare(std::size_t bytes) { return Spares::ended ? nullptr : spares().take(bytes); }

void* allocate_small(std::size_t bytes, bool zeroed) {
  void* memory = bytes < kept_from ? nullptr : spare(bytes);
  if (memory == nullptr) {
    void* base = std::aligned_alloc(alignment, round_up(alignment + bytes, alignment));
    if (base == nullptr) throw std::bad_alloc();
    memory = static_cast<char*>(base) + alignment;
    *origin_of(memory) = {base, 0, bytes < kept_from ? 0 : bytes};
  }
  if (zeroed) std::memset(memory, 0, bytes);
  return memory;
}

void require_possible(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
}

}  // namespace

void* allocate_aligned(std::size_t bytes) {
  require_possible(bytes);
  return bytes < huge_from ? allocate_small(bytes, true) : allocate_huge(bytes);
}

void* allocate_dirty(std::size_t bytes) {
  require_possible(bytes);
  if (bytes < huge_from) return allocate_small(bytes, false);
  if (void* memory = spare(bytes)) return memory;
  void* memory = allocate_huge(bytes);
  origin_of(memory)->keep_as = bytes;
  return memory;
}

void free_aligned(void* memory) {
  if (memory == nullptr) return;
  if (origin_of(memory)->keep_as > 0 && !Spares::ended) {
    spares().put(memory);
  } else {
    give_back(memory);
  }
}

void* Scratch::get(std::size_t bytes) {
  if (memory_ == nullptr || bytes > bytes_) {
    free_aligned(memory_);
    memory_ = nullptr;  // stays so if the next line throws
    memory_ = allocate_aligned(bytes);
    bytes_ = bytes;
  }
  return memory_;
}

}  // namespace qkv
