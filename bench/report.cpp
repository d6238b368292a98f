// bench/report.cpp: results, as a table to read or as JSON lines to keep.
#include "bench/report.h"

#include <cmath>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <ostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include <qkv/isa.h>

namespace qkv::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t value = line.find(": ");
    if (line.starts_with("model name") && value != std::string::npos) return line.substr(value + 2);
  }
  return "unknown";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  gmtime_r(&now, &parts);
  std::ostringstream text;
  text << std::put_time(&parts, "%Y-%m-%d");
  return text.str();
}

// Five significant digits are more than a measurement has.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double unit = std::pow(10.0, 4 - std::floor(std::log10(std::abs(value))));
  return std::round(value * unit) / unit;
}

Json start_line(const Bench& bench, const Case& subject, int threads) {
  Json shape = Json::object();
  for (const auto& [letter, extent] : subject.shape) shape[letter] = extent;
  return {{"bench", bench.name},
          {"case", subject.name},
          {"shape", shape},
          {"threads", threads},
          {"isa", name_of(current_isa())}};
}

// Letters that say nothing new are left out: B = 1, Hk = H, Dv = D, and Tk = Tq, which are then T.
std::string short_shape(const Case& subject) {
  const auto extent = [&](std::string_view wanted) -> std::int64_t {
    for (const auto& [letter, value] : subject.shape) {
      if (letter == wanted) return value;
    }
    return -1;
  };
  const bool square = extent("Tq") == extent("Tk");
  std::ostringstream text;
  for (const auto& [letter, value] : subject.shape) {
    if ((letter == "B" && value == 1) || (letter == "Hk" && value == extent("H"))) continue;
    if ((letter == "Dv" && value == extent("D")) || (letter == "Tk" && square)) continue;
    text << (text.tellp() > 0 ? " " : "") << (letter == "Tq" && square ? "T" : letter) << "=" << value;
  }
  return text.str();
}

bool compares(const Bench& bench) {
  for (const Group& group : bench.groups) {
    for (const Case& subject : group.cases) {
      if (subject.name == bench.reference) return true;
    }
  }
  return false;
}

constexpr int name_width = 14, shape_width = 32, number_width = 12;

}  // namespace

Report::Report(std::ostream& out, bool json, int threads) : out_(out), json_(json), threads_(threads) {}

void Report::add(const Bench& bench, const Case& subject, const Result& result) {
  const bool bandwidth = bench.limit == Limit::bandwidth;
  if (json_) {
    Json line = start_line(bench, subject, threads_);
    line["ms"] = rounded(result.seconds * 1e3);
    line[bandwidth ? "gb_per_s" : "gflops"] = rounded(result.rate * 1e-9);
    line[bandwidth ? "peak_gb_per_s" : "peak_gflops"] = rounded(result.peak * 1e-9);
    line[bandwidth ? "share_of_bandwidth" : "share_of_peak"] = rounded(result.rate / result.peak);
    if (subject.useful_pairs > 0) line["useful_pairs"] = subject.useful_pairs;
    if (subject.units > 0) line["ns_per_unit"] = rounded(result.seconds * 1e9 / static_cast<double>(subject.units));
    if (result.vs_reference) line["vs_" + bench.reference] = rounded(*result.vs_reference);
    line["cpu"] = processor();
    line["date"] = today();
    out_ << line.dump() << std::endl;
    return;
  }
  start_table(bench);
  out_ << std::left << std::setw(name_width) << subject.name << std::setw(shape_width) << short_shape(subject)
       << std::right << std::fixed << std::setprecision(3) << std::setw(number_width) << result.seconds * 1e3
       << std::setprecision(1) << std::setw(number_width) << result.rate * 1e-9 << std::setw(number_width)
       << result.peak * 1e-9 << std::setw(number_width - 2) << 100 * result.rate / result.peak << " %";
  if (result.vs_reference) out_ << std::setw(number_width - 2) << 100 * *result.vs_reference << " %";
  if (subject.units > 0) {
    out_ << std::setprecision(4) << std::setw(number_width) << result.seconds * 1e9 / static_cast<double>(subject.units)
         << " ns a unit";
  }
  out_ << std::endl;
}

void Report::add_wrong(const Bench& bench, const Case& subject, const std::string& what) {
  if (json_) {
    Json line = start_line(bench, subject, threads_);
    line["error"] = what;
    out_ << line.dump() << std::endl;
    return;
  }
  start_table(bench);
  out_ << std::left << std::setw(name_width) << subject.name << std::setw(shape_width) << short_shape(subject)
       << "  WRONG: " << what << std::endl;
}

void Report::start_table(const Bench& bench) {
  if (table_ == bench.name) return;
  if (table_.empty()) {
    out_ << processor() << ", " << name_of(current_isa()) << ", " << threads_
         << (threads_ == 1 ? " thread (CPU time)" : " threads (wall time)") << "\n";
  }
  table_ = bench.name;
  const bool bandwidth = bench.limit == Limit::bandwidth;
  out_ << "\n"
       << std::left << std::setw(name_width + shape_width) << bench.name << std::right << std::setw(number_width)
       << "ms" << std::setw(number_width) << (bandwidth ? "GB/s" : "GFLOP/s") << std::setw(number_width) << "peak"
       << std::setw(number_width) << "share";
  if (compares(bench)) out_ << std::setw(number_width) << " vs " + bench.reference;
  out_ << "\n";
}

}  // namespace qkv::bench
