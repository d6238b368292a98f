// bench/group.cpp: leaves out what was not asked for.
#include "bench/group.h"

#include <algorithm>
#include <utility>

namespace qkv::bench {

void add_group(Bench& bench, const Options& options, const std::vector<CaseMaker>& makers) {
  const auto wanted = [&](const CaseMaker& maker) {
    return options.only_case.empty() || options.only_case == maker.name;
  };
  if (std::none_of(makers.begin(), makers.end(), wanted)) return;
  Group group{.cases = {}, .peaks = {fma_peak(options.threads)}};
  for (const CaseMaker& maker : makers) {
    if (!wanted(maker) && maker.name != bench.reference) continue;
    group.cases.push_back(maker.make());
    group.cases.back().reported = wanted(maker);
  }
  bench.groups.push_back(std::move(group));
}

}  // namespace qkv::bench
