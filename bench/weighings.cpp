// bench/weighings.cpp: what each weighing costs.
#include "bench/weighings.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <qkv/attend.h>

#include "bench/group.h"
#include "bench/problem.h"

namespace qkv::bench {
namespace {

constexpr std::array<std::int64_t, 3> lengths = {512, 1024, 2048};
constexpr std::array<std::int64_t, 2> widths = {64, 128};

struct Entry {
  const char* name;
  Weigh weigh;
};
const Entry entries[] = {{"softmax", softmax()}, {"normalize", normalize()}, {"raw", raw()},
                         {"hard", hard()},       {"uniform", uniform()},     {"top_k", top_k(8)}};

Case weigh_case(const Entry& entry, std::int64_t T, std::int64_t D, int threads) {
  const auto problem = square_problem(heads_for(T), T, D, threads);
  problem->options.weigh = entry.weigh;
  // Eighths, whose products float32 adds up exactly, and a scale that is a power of 2: which scores are the best does
  // not hang on rounding. Normalize divides by a sum that must not be near 0.
  problem->options.scale = 0.125;
  for (Tensor* tensor : {&problem->q, &problem->k}) {
    for (float& x : tensor->values<float>()) {
      x = std::round(x * 8) / 8;
      if (entry.weigh.kind == Weigh::Kind::normalize) x = std::abs(x);
    }
  }
  return square_case(entry.name, problem);
}

}  // namespace

Bench weighings_bench(const Options& options) {
  Bench bench{.name = "weighings", .limit = Limit::operations, .groups = {}, .reference = "softmax"};
  for (const std::int64_t D : widths) {
    for (const std::int64_t T : lengths) {
      if (options.T.value_or(T) != T || options.D.value_or(D) != D) continue;
      if (options.quick && !options.T && (T == lengths.back() || D != widths.front())) continue;
      std::vector<CaseMaker> makers;
      for (const Entry& entry : entries) {
        makers.push_back({entry.name, [=, &options] { return weigh_case(entry, T, D, options.threads); }});
      }
      add_group(bench, options, makers);
    }
  }
  return bench;
}

}  // namespace qkv::bench
