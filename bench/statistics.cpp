// bench/statistics.cpp: what each statistic costs that comes from the same pass.
#include "bench/statistics.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <qkv/attend.h>

#include "base/message.h"
#include "bench/group.h"
#include "bench/problem.h"
#include "reference/attend.h"

namespace qkv::bench {
namespace {

constexpr std::array<std::int64_t, 3> lengths = {1024, 2048, 4096};
constexpr std::int64_t width = 64;

struct Entry {
  const char* name;
  void (*ask)(AttendOptions& options, View rows);
};
const Entry entries[] = {
    {"none", [](AttendOptions&, View) {}},
    {"lse", [](AttendOptions& options, View) { options.want_lse = true; }},
    {"mass", [](AttendOptions& options, View) { options.want_mass = true; }},
    {"top", [](AttendOptions& options, View) { options.want_top = 8; }},
    {"entropy", [](AttendOptions& options, View) { options.want_entropy = true; }},
    {"effective", [](AttendOptions& options, View) { options.want_effective = true; }},
    {"rows", [](AttendOptions& options, View rows) { options.want_rows = rows; }},
    {"partial", [](AttendOptions& options, View) { options.want_partial = true; }},
    {"weights", [](AttendOptions& options, View) { options.want_weights = true; }},
};

// One number of each statistic that is there, for the first query of the first head.
std::string check_statistics(const Problem& problem, const Attended& got) {
  const auto exact = reference::attend<double>(problem.q.view().slice(1, 0, 1), problem.k.view().slice(1, 0, 1),
                                               problem.v.view().slice(1, 0, 1), problem.options);
  const auto compare = [](const char* name, const Tensor& tensor, const std::vector<double>& right) -> std::string {
    if (!tensor) return {};
    const auto value = static_cast<double>(tensor.values<float>()[0]);
    if (std::abs(value - right[0]) <= 1e-4 * std::max(1.0, std::abs(right[0]))) return {};
    return message(name, " of the first query is ", value, ", not ", right[0]);
  };
  for (const std::string& wrong :
       {compare("lse", got.lse, exact.lse), compare("weight", got.weights, exact.weights),
        compare("mass", got.mass, exact.mass), compare("top weight", got.top_weights, exact.top_weights),
        compare("entropy", got.entropy, exact.entropy), compare("effective", got.effective, exact.effective)}) {
    if (!wrong.empty()) return wrong;
  }
  return {};
}

Case statistic_case(const Entry& entry, std::int64_t T, int threads) {
  const auto problem = square_problem(heads_for(T), T, width, threads, 3);
  Tensor rows({4}, Dtype::int64);  // of which one is near the middle
  for (std::size_t i = 0; i < 4; ++i) rows.values<std::int64_t>()[i] = static_cast<std::int64_t>(i) * T / 4;
  problem->others.push_back(std::move(rows));
  entry.ask(problem->options, problem->others[0]);
  Case made = square_case(entry.name, problem);
  made.call = [problem] { attend(problem->q, problem->k, problem->v, problem->options); };
  made.check = [problem] {
    const Attended got = attend(problem->q, problem->k, problem->v, problem->options);
    // The reference takes seconds for all queries of a long sequence, which only masses need.
    if (problem->options.want_mass && problem->q.shape()[2] > 1024) return std::string();
    return check_statistics(*problem, got);
  };
  return made;
}

}  // namespace

Bench statistics_bench(const Options& options) {
  Bench bench{.name = "statistics", .limit = Limit::operations, .groups = {}, .reference = "none"};
  for (const std::int64_t T : lengths) {
    if (options.T.value_or(T) != T || options.D.value_or(width) != width) continue;
    if (options.quick && !options.T && T == lengths[1]) continue;
    std::vector<CaseMaker> makers;
    for (const Entry& entry : entries) {
      makers.push_back({entry.name, [=, &options] { return statistic_case(entry, T, options.threads); }});
    }
    add_group(bench, options, makers);
  }
  return bench;
}

}  // namespace qkv::bench
