// bench/group.h: which cases of one size are measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/run.h"

namespace qkv::bench {

// A case that is made only if it is measured.
struct CaseMaker {
  std::string name;
  std::function<Case()> make;
};

// Adds a group of the cases that the options want, if there are any. The bench's reference is measured with them even
// where it is not reported. The peak is that of operations.
void add_group(Bench& bench, const Options& options, const std::vector<CaseMaker>& makers);

}  // namespace qkv::bench
