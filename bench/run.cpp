// bench/run.cpp: chooses what to measure.
#include "bench/run.h"

#include <array>
#include <string_view>

#include <qkv/error.h>

#include "base/message.h"
#include "bench/attend.h"
#include "bench/backward.h"
#include "bench/cache.h"
#include "bench/chosen_isa.h"
#include "bench/decode.h"
#include "bench/gemm.h"
#include "bench/layers.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/scores.h"
#include "bench/statistics.h"
#include "bench/weighings.h"

namespace qkv::bench {
namespace {

struct Entry {
  std::string_view name;
  Bench (*make)(const Options& options);
};
constexpr std::array<Entry, 9> entries = {{{"attend", attend_bench},
                                           {"decode", decode_bench},
                                           {"gemm", gemm_bench},
                                           {"scores", scores_bench},
                                           {"weighings", weighings_bench},
                                           {"statistics", statistics_bench},
                                           {"cache", cache_bench},
                                           {"backward", backward_bench},
                                           {"layers", layers_bench}}};

std::string text_of(const Options& options) {
  std::string text = options.what.empty() ? "any benchmark" : options.what;
  if (!options.only_case.empty()) text += ", case " + options.only_case;
  if (options.T) text += ", T = " + std::to_string(*options.T);
  if (options.D) text += ", D = " + std::to_string(*options.D);
  return text;
}

}  // namespace

int run(const Options& options, std::ostream& out) {
  if (options.threads < 1) throw OptionError(message("bench: threads must be at least 1, not ", options.threads));
  const ChosenIsa isa(options.isa);
  Report report(out, options.json, options.threads);
  bool all_right = true, found = false;
  for (const Entry& entry : entries) {
    if (!options.what.empty() && options.what != entry.name) continue;
    Bench bench = entry.make(options);
    if (bench.groups.empty()) continue;
    found = true;
    all_right &= measure(bench, options, report);
  }
  if (!found) {
    std::string names;
    for (const Entry& entry : entries) names += (names.empty() ? "" : ", ") + std::string(entry.name);
    throw OptionError(
        message("bench: there is nothing to measure for ", text_of(options), "; the benchmarks are ", names));
  }
  return all_right ? 0 : 1;
}

}  // namespace qkv::bench
