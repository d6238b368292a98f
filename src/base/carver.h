// base/carver.h: cuts one piece of memory into aligned arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned.h"

namespace qkv {

// With `memory` null it only counts.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* take(std::int64_t count) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + alignment - 1) / alignment * alignment;
    return reinterpret_cast<T*>(at);
  }
  std::size_t bytes() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace qkv
