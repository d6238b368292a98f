// bench/cases.h: what is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/peak.h"

namespace qkv::bench {

// One shape of one case.
struct Case {
  std::string name;
  std::vector<std::pair<std::string, std::int64_t>> shape;  // the extents by their letters
  double work = 0;                     // of one call: useful floating-point operations, or bytes that must be read
  std::int64_t useful_pairs = 0;       // of (query, key), over all heads; 0 where there are none
  std::int64_t units = 0;              // of (query, key, hidden unit); 0 where there are none
  std::function<void()> call;          // what is timed; owns its data
  std::function<std::string()> check;  // calls, and compares with the reference: what is wrong, empty if nothing is
  bool reported = true;                // false: measured only for others to be compared with it
};

// Cases that are measured in turns, with the peak that they are compared with in between. The others are
// compared with the case called `reference`, too, if it is there.
struct Group {
  std::vector<Case> cases;
  std::vector<Peak> peaks;  // several ways to the same peak; the best counts
};

enum class Limit { operations, bandwidth };

// All groups of one benchmark.
struct Bench {
  std::string name;
  Limit limit;
  std::vector<Group> groups;
  std::string reference = "plain";  // the case that others are compared with, which comes before them in its group
};

}  // namespace qkv::bench
