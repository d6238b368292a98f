// bench/report.h: results, as a table to read or as JSON lines to keep.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "bench/cases.h"

namespace qkv::bench {

struct Result {
  double seconds = 0;                  // of one call, the best
  double rate = 0;                     // work per second
  double peak = 0;                     // the highest rate the machine has, measured in turns with it
  std::optional<double> vs_reference;  // its share of the peak over that of the reference case of the same size
};

// Writes to a stream that it is given. The processor, the instruction set and the number of threads are part of every
// JSON line and stand above every table.
class Report {
 public:
  Report(std::ostream& out, bool json, int threads);

  void add(const Bench& bench, const Case& subject, const Result& result);
  // Instead of a time.
  void add_wrong(const Bench& bench, const Case& subject, const std::string& what);

 private:
  void start_table(const Bench& bench);

  std::ostream& out_;
  bool json_;
  int threads_;
  std::string table_;  // the bench whose table is being written
};

}  // namespace qkv::bench
