// kernels/processor.cpp: asks the processor what it is.
#include "kernels/processor.h"

#include <unistd.h>

namespace qkv::kernels {

bool is_intel() {
  static const bool answer = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") != 0;
  }();
  return answer;
}

std::int64_t second_level_cache() {
  static const std::int64_t size = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return size > 0 ? size : 512 * 1024;
}

}  // namespace qkv::kernels
