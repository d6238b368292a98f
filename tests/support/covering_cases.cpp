// support/covering_cases.cpp: makes and runs the cases of a covering array.
#include "support/covering_cases.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "support/covering.h"
#include "support/isas.h"
#include "support/matrix.h"
#include "support/problem.h"

namespace qkv::test {

void CoveringCases::add(std::size_t choices, Set set) {
  levels_.push_back(static_cast<int>(choices));
  sets_.push_back(std::move(set));
}

void CoveringCases::vary(bool Case::*member) {
  add(2, [member](Case& c, std::size_t choice) { c.*member = choice != 0; });
}

void CoveringCases::vary(const std::vector<Heads>& heads) {
  vary(heads, [](Case& c, const Heads& choice) {
    c.B = choice.B;
    c.H = choice.H;
    c.Hk = choice.Hk;
  });
}

void CoveringCases::vary(const std::vector<Dtypes>& dtypes) {
  vary(dtypes, [](Case& c, const Dtypes& choice) {
    c.q = choice.q;
    c.k = choice.k;
    c.v = choice.v;
    c.out = choice.out;
    c.parameters = choice.parameters;
  });
}

void CoveringCases::run() const {
  const std::vector<Isa> isas = tested_isas();
  std::vector<int> levels = levels_;
  levels.push_back(static_cast<int>(isas.size()));
  std::uint64_t seed = 0;
  const int repeats = full_matrix() ? 5 : 1;
  for (const std::vector<int>& row : pairwise_rows(levels)) {
    Case c;
    for (std::size_t i = 0; i < sets_.size(); ++i) sets_[i](c, static_cast<std::size_t>(row[i]));
    const Isa isa = isas[static_cast<std::size_t>(row.back())];
    const WithIsa with(isa);
    SCOPED_TRACE("isa " + std::string(name_of(isa)));
    for (int repeat = 0; repeat < repeats; ++repeat) {
      c.seed = ++seed;
      expect_right(c);
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace qkv::test
