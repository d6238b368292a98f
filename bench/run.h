// bench/run.h: how fast attention is on this machine: what `qkv bench` calls.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

#include <qkv/isa.h>

namespace qkv::bench {

struct Options {
  std::string what;                  // "attend", "decode", "gemm", "scores", ...; empty is all
  std::string only_case;             // one case of them ("causal"); empty is all
  std::optional<std::int64_t> T;     // one length only: T, Tk of decode and cache, M of gemm
  std::optional<std::int64_t> D;     // one width only: D, N of gemm
  bool json = false;                 // JSON lines instead of a table
  int threads = 1;                   // one: CPU time is measured; several: wall time
  std::optional<Isa> isa;            // instead of the best one
  bool quick = false;                // under a minute, fewer repetitions
  std::ostream* progress = nullptr;  // told what is being measured, where somebody watches
};

// Measures, and writes the results to `out`. Every output is checked against the double-precision reference before it
// is timed. Returns 0; 1 where an output was wrong, which is said instead of a time; throws OptionError where an option
// names nothing that exists or asks for something this machine does not have.
int run(const Options& options, std::ostream& out);

// Measures on request, for programs that alternate with another one: reads lines such as
//   attend causal H=8 T=512 D=64 seconds=0.1
//   decode float32 H=16 T=16384 D=64 seconds=0.1
// from `in` and answers each with one JSON line that holds "ms", the best over at least so many seconds. The last
// request stays prepared, so that repeating it costs only the measurement. Of the options, `threads` and `isa` count.
// Returns 0 at the end of the input, and 1 after answering {"error": ...} to a request that makes no sense or whose
// output was wrong.
int serve(const Options& options, std::istream& in, std::ostream& out);

}  // namespace qkv::bench
