// support/pages.h: memory that must not be read, and a crash where it is.
#pragma once

#include <cstddef>
#include <cstdint>

#include <qkv/tensor.h>

namespace qkv::test {

// Whole pages of memory. Touching a forbidden one ends the process with SIGSEGV, so a test that passes proves that
// nothing read it. The page behind the last is always forbidden.
class Pages {
 public:
  explicit Pages(std::size_t count);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  static std::size_t size();  // of one page, in bytes
  std::byte* data() const { return data_; }
  std::byte* page(std::size_t index) const { return data_ + index * size(); }
  void forbid(std::size_t first, std::size_t count = 1);

 private:
  std::byte* data_;
  std::size_t count_;
};

// Rows of floats, each at the very end of a page of its own, so that reading beyond a row hits the next page.
class RowsOnPages {
 public:
  explicit RowsOnPages(const View& rows);  // [1, 1, T, D], float32; copied

  void forbid(std::int64_t row) { pages_.forbid(static_cast<std::size_t>(row)); }
  View view() const;

 private:
  Pages pages_;
  Shape shape_;
};

}  // namespace qkv::test
