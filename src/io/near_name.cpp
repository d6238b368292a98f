// io/near_name.cpp: which of several names was probably meant.
#include "io/near_name.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace qkv {
namespace {

// How many letters must be put in, left out or exchanged; bytes for letters.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // for the beginnings of b, and of a as far as it has been looked at
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t exchanged = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({exchanged, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

bool is_suffix(std::string_view part, std::string_view name) {
  return name.size() > part.size() && name.ends_with(part) && name[name.size() - part.size() - 1] == '.';
}

}  // namespace

std::string_view near_name(std::string_view name, const std::vector<StoredTensor>& tensors) {
  // An error must not take long: a file may have millions of names, and each may be long.
  constexpr std::size_t longest = 200, most = 5000;
  if (name.empty() || name.size() > longest) return {};
  std::string_view nearest;
  std::size_t fewest = std::min<std::size_t>(name.size() / 4 + 1, 8);
  for (std::size_t i = 0; i < std::min(tensors.size(), most); ++i) {
    const std::string_view other = tensors[i].name;
    if (other.empty() || other.size() > longest) continue;
    if (is_suffix(name, other) || is_suffix(other, name)) return other;
    if (std::max(name.size(), other.size()) - std::min(name.size(), other.size()) >= fewest) continue;
    const std::size_t edits = edits_between(name, other);
    if (edits < fewest) {
      fewest = edits;
      nearest = other;
    }
  }
  return nearest;
}

}  // namespace qkv
