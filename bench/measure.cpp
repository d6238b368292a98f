// bench/measure.cpp: checks, measures and reports a benchmark.
#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/timing.h"

namespace qkv::bench {
namespace {

// All groups are visited several times over, because bursts of noise on a shared machine last for seconds: one visit
// may fall into one, all of them hardly do.
struct Effort {
  int rounds;
  int passes;      // over a group in each round, at least
  double seconds;  // for a group in each round, at least
};
constexpr Effort quick_effort = {3, 2, 0.12};
constexpr Effort full_effort = {10, 3, 0.6};

struct Measured {
  const Case* subject;
  Subject timing;
};

struct MeasuredGroup {
  std::vector<Measured> cases;
  std::vector<Subject> peaks;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// What is called again and again finds its operands where the last call left them; a case that comes after another one
// finds the other's. So short cases are timed a few times in a row.
constexpr int times_in_a_row = 4;
constexpr double row_seconds = 0.015;

void time_in_a_row(Subject& subject, const Clock& clock) {
  const double end = now() + row_seconds;
  for (int i = 0; i < times_in_a_row && (i == 0 || now() < end); ++i) subject.time_once_more(clock);
}

void visit(MeasuredGroup& group, const Clock& clock, const Effort& effort) {
  const double end = now() + effort.seconds;
  for (int pass = 0; pass < effort.passes || now() < end; ++pass) {
    for (Measured& measured : group.cases) {
      for (Subject& peak : group.peaks) peak.time_once_more(clock);
      time_in_a_row(measured.timing, clock);
    }
  }
}

double best_rate(const Group& group, const MeasuredGroup& measured) {
  double best = 0;
  for (std::size_t i = 0; i < group.peaks.size(); ++i) {
    best = std::max(best, group.peaks[i].work / measured.peaks[i].seconds());
  }
  return best;
}

void report_group(const Bench& bench, const Group& group, const MeasuredGroup& measured, Report& report) {
  const double peak = best_rate(group, measured);
  std::optional<double> reference_rate;
  for (const Measured& m : measured.cases) {
    const double rate = m.subject->work / m.timing.seconds();
    const bool is_reference = m.subject->name == bench.reference;
    if (is_reference) reference_rate = rate;
    Result result{.seconds = m.timing.seconds(), .rate = rate, .peak = peak, .vs_reference = {}};
    if (reference_rate && !is_reference) result.vs_reference = rate / *reference_rate;
    if (m.subject->reported) report.add(bench, *m.subject, result);
  }
}

}  // namespace

bool measure(Bench& bench, const Options& options, Report& report) {
  const auto tell = [&](const std::string& text) {
    if (options.progress != nullptr) *options.progress << "\r\033[K" << text << std::flush;
  };
  bool all_right = true;
  std::vector<MeasuredGroup> measured;
  for (const Group& group : bench.groups) {
    MeasuredGroup& added = measured.emplace_back();
    for (const Peak& peak : group.peaks) added.peaks.emplace_back(peak.call);
    for (const Case& subject : group.cases) {
      tell("checking " + bench.name + " " + subject.name);
      const std::string wrong = subject.check();
      if (wrong.empty()) {
        added.cases.push_back({&subject, Subject(subject.call)});
      } else {
        all_right = false;
        tell("");
        report.add_wrong(bench, subject, wrong);
      }
    }
  }
  const Clock clock(options.threads);
  const Effort& effort = options.quick ? quick_effort : full_effort;
  for (int round = 0; round < effort.rounds; ++round) {
    for (std::size_t g = 0; g < measured.size(); ++g) {
      tell("measuring " + bench.name + ", round " + std::to_string(round + 1) + " of " + std::to_string(effort.rounds) +
           ", shape " + std::to_string(g + 1) + " of " + std::to_string(measured.size()));
      visit(measured[g], clock, effort);
    }
  }
  tell("");
  for (std::size_t g = 0; g < measured.size(); ++g) report_group(bench, bench.groups[g], measured[g], report);
  return all_right;
}

}  // namespace qkv::bench
