// support/pages.cpp: memory that must not be read, and a crash where it is.
#include "support/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace qkv::test {

std::size_t Pages::size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

Pages::Pages(std::size_t count) : count_(count + 1) {
  void* memory = mmap(nullptr, count_ * size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  data_ = static_cast<std::byte*>(memory);
  forbid(count);
}

Pages::~Pages() { munmap(data_, count_ * size()); }

void Pages::forbid(std::size_t first, std::size_t count) {
  if (mprotect(page(first), count * size(), PROT_NONE) != 0) {
    throw std::system_error(errno, std::generic_category(), "mprotect");
  }
}

}  // namespace qkv::test
