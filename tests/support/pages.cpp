// support/pages.cpp: memory that must not be read, and a crash where it is.
#include "support/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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

RowsOnPages::RowsOnPages(const View& rows) : pages_(static_cast<std::size_t>(rows.extent(2))), shape_(rows.shape()) {
  const auto width = static_cast<std::size_t>(rows.extent(3)) * sizeof(float);
  for (std::int64_t j = 0; j < rows.extent(2); ++j) {
    const auto page = static_cast<std::size_t>(j);
    std::memcpy(pages_.page(page) + Pages::size() - width, rows.as<float>() + j * rows.stride(2), width);
  }
}

View RowsOnPages::view() const {
  const auto page = static_cast<std::int64_t>(Pages::size() / sizeof(float));
  const auto* first = reinterpret_cast<const float*>(pages_.data()) + page - shape_[3];
  return View(first, shape_, {page * shape_[2], page * shape_[2], page, 1});
}

}  // namespace qkv::test
