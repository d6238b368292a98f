// base/checked.cpp: arithmetic on sizes that throws instead of wrapping.
#include "base/checked.h"

#include <qkv/error.h>

#include "base/message.h"

namespace qkv {

std::int64_t checked_mul(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw ShapeError(message(what, ": ", a, " * ", b, " does not fit in 64 bits"));
  }
  return product;
}

std::int64_t checked_add(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    throw ShapeError(message(what, ": ", a, " + ", b, " does not fit in 64 bits"));
  }
  return sum;
}

}  // namespace qkv
