// io/sorted_places.cpp: the order of things, without moving them.
#include "io/sorted_places.h"

#include <algorithm>
#include <numeric>

namespace qkv {

std::vector<std::size_t> sorted_places(std::size_t count, FunctionRef<bool(std::size_t a, std::size_t b)> before) {
  std::vector<std::size_t> places(count);
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::sort(places.begin(), places.end(),
            [&](std::size_t a, std::size_t b) { return before(a, b) || (a < b && !before(b, a)); });
  return places;
}

}  // namespace qkv
