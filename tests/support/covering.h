// support/covering.h: few cases that contain every pair of choices.
#pragma once

#include <vector>

namespace qkv::test {

// Factors with levels[f] choices each. Every row picks one choice of each factor, and for any two factors every pair of
// their choices is in some row: most faults need one choice or two together, and the whole product is out of reach.
// Greedy and deterministic; about 1.2 to 2 times as many rows as the two largest factors have pairs.
std::vector<std::vector<int>> pairwise_rows(const std::vector<int>& levels);

}  // namespace qkv::test
