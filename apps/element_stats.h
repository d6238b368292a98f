// apps/element_stats.h: what the elements of an array are like.
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include <qkv/tensor.h>

namespace qkv::apps {

// Of the finite elements; null where there is none. Integers stay integers.
struct ElementStats {
  nlohmann::json min, max, mean;
  std::int64_t nan = 0, infinite = 0;
};

ElementStats element_stats(View dense);

}  // namespace qkv::apps
