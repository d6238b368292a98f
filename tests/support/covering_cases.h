// support/covering_cases.h: attention problems that contain every pair of choices.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <vector>

#include "support/case.h"

namespace qkv::test {

struct Heads {
  std::int64_t B, H, Hk;
};
struct Dtypes {
  Dtype q, k, v;
  std::optional<Dtype> out = {}, parameters = {};
};

// A covering array (see pairwise_rows) over what is varied here and the instruction sets. Choices are made in the order
// in which they are named, so that one may look at those before it.
class CoveringCases {
 public:
  template <class Choices, class Set>
  void vary(const Choices& choices, Set set) {
    add(std::size(choices), [choices, set](Case& c, std::size_t choice) { set(c, choices[choice]); });
  }
  template <class Member, class Choices>
  void vary(Member Case::*member, const Choices& choices) {
    add(std::size(choices), [member, choices](Case& c, std::size_t choice) { c.*member = choices[choice]; });
  }
  void vary(bool Case::*member);
  void vary(const std::vector<Heads>& heads);
  void vary(const std::vector<Dtypes>& dtypes);

  // Expects every case to be right, in the full matrix with several seeds.
  void run() const;

 private:
  using Set = std::function<void(Case&, std::size_t choice)>;
  void add(std::size_t choices, Set set);

  std::vector<int> levels_;
  std::vector<Set> sets_;
};

}  // namespace qkv::test
