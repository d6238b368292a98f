// io/elements.cpp: the elements of arrays on their way between files and memory, where they are the same bytes.
#include "io/elements.h"

#include <bit>

#include "base/checked.h"
#include "io/refuse.h"

static_assert(std::endian::native == std::endian::little, "elements are read and written as they lie in memory");

namespace qkv {

void require_booleans(const View& view) {
  const auto* bytes = view.as<unsigned char>();
  for (std::int64_t i = 0; i < view.elements(); ++i) {
    if (bytes[i] > 1) {
      refuse("its bool element ", i, " is stored as ", int{bytes[i]}, ", not as 0 or 1");
    }
  }
}

std::int64_t bytes_of(const View& array) {
  return checked_mul(array.elements(), static_cast<std::int64_t>(size_of(array.dtype())), "the size in bytes");
}

void write_elements(FileWriter& file, const View& array) {
  if (!array.is_dense()) return write_elements(file, Tensor::copy_of(array));
  file.write({array.as<std::byte>(), static_cast<std::size_t>(bytes_of(array))});
}

}  // namespace qkv
