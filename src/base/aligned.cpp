// base/aligned.cpp: aligned memory, for tensors and for the scratch of kernels.
#include "base/aligned.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

namespace qkv {
namespace {

constexpr std::size_t small_page = 4096;
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::size_t huge_from = std::size_t{4} << 20;

// Stands in the 64 bytes before the memory that is handed out and says how to give it back.
struct Origin {
  void* base;
  std::size_t mapped;  // bytes to unmap from base; 0: base came from aligned_alloc
};
static_assert(sizeof(Origin) <= alignment);

Origin* origin_of(void* memory) { return reinterpret_cast<Origin*>(static_cast<char*>(memory) - alignment); }

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* allocate_small(std::size_t bytes) {
  void* base = std::aligned_alloc(alignment, round_up(alignment + bytes, alignment));
  if (base == nullptr) throw std::bad_alloc();
  void* memory = static_cast<char*>(base) + alignment;
  *origin_of(memory) = {base, 0};
  std::memset(memory, 0, bytes);
  return memory;
}

// Fresh pages of the system are zero already. The Origin lies in a small page of its own before the 2 MB boundary.
void* allocate_huge(std::size_t bytes) {
  const std::size_t mapped = round_up(bytes, small_page) + huge_page + small_page;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  const std::size_t address = reinterpret_cast<std::uintptr_t>(base);
  void* memory = static_cast<char*>(base) + (round_up(address + small_page, huge_page) - address);
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: a system without huge pages still gives memory
  *origin_of(memory) = {base, mapped};
  return memory;
}

// What a thread keeps of the memory of its calls: few pieces, none of them huge.
struct Kept {
  static constexpr std::size_t most = 4;
  static constexpr std::size_t largest = std::size_t{64} << 20;

  struct Piece {
    void* memory;
    std::size_t bytes;
  };
  std::vector<Piece> pieces;

  ~Kept() {
    for (const Piece& piece : pieces) free_aligned(piece.memory);
    ended = true;
  }
  static thread_local bool ended;  // what is given back after it is freed
};
thread_local bool Kept::ended = false;

Kept& kept() {
  thread_local Kept pieces;
  return pieces;
}

}  // namespace

Reused::Reused(std::size_t bytes) {
  auto& pieces = kept().pieces;
  const auto fits = std::find_if(pieces.begin(), pieces.end(), [&](const Kept::Piece& p) { return p.bytes >= bytes; });
  if (fits != pieces.end()) {
    memory_ = fits->memory;
    bytes_ = fits->bytes;
    pieces.erase(fits);
    return;
  }
  memory_ = allocate_aligned(bytes);
  bytes_ = bytes;
  pieces.reserve(Kept::most);  // so that giving back cannot throw
}

Reused::~Reused() {
  if (memory_ == nullptr) return;
  if (!Kept::ended && bytes_ <= Kept::largest) {
    auto& pieces = kept().pieces;
    if (pieces.size() == Kept::most) {
      free_aligned(pieces.front().memory);
      pieces.erase(pieces.begin());
    }
    if (pieces.capacity() >= Kept::most) {
      pieces.push_back({memory_, bytes_});
      return;
    }
  }
  free_aligned(memory_);
}

void* allocate_aligned(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) throw std::bad_alloc();
  return bytes < huge_from ? allocate_small(bytes) : allocate_huge(bytes);
}

void free_aligned(void* memory) {
  if (memory == nullptr) return;
  const Origin origin = *origin_of(memory);
  if (origin.mapped == 0) {
    std::free(origin.base);
  } else {
    munmap(origin.base, origin.mapped);
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
