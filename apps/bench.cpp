// apps/bench.cpp: `qkv bench`: how fast attention is on this machine.
#include <unistd.h>

#include <iostream>
#include <memory>

#include <qkv/isa.h>

#include "bench/run.h"
#include "command.h"

namespace qkv::apps {

Command bench_command(CLI::App& qkv) {
  CLI::App& app = *qkv.add_subcommand("bench", "How fast attention and its training are on this machine");
  const auto options = std::make_shared<bench::Options>();
  app.add_option("what", options->what, "What is measured; everything if not said")
      ->check(CLI::IsMember(
          {"attend", "decode", "gemm", "scores", "weighings", "statistics", "cache", "backward", "layers"}))
      ->option_text("attend|decode|gemm|scores|weighings|statistics|cache|backward|layers");
  app.add_flag("--json", options->json, "JSON lines instead of a table");
  app.add_option("--threads", options->threads, "How many (1)")->check(CLI::Range(1, 1024))->option_text("N");
  add_choice<Isa>(app, "--isa", options->isa,
                  {{"baseline", Isa::baseline}, {"avx2", Isa::avx2}, {"avx512", Isa::avx512}},
                  "The instruction set instead of the best one");
  app.add_option("--case", options->only_case, "One case only, such as causal")->option_text("NAME");
  app.add_option("-T", options->T, "One length only: T, Tk of decode and cache, M of gemm")->option_text("N");
  app.add_option("-D", options->D, "One width only: D, N of gemm")->option_text("N");
  app.add_flag("--quick", options->quick, "Fewer repetitions: under a minute");
  app.footer(
      "Every output is checked against a double-precision reference before it is timed. FMA peak and read\n"
      "bandwidth are measured in the same run; shares of them are what carries over to other machines.\n\n"
      "Examples:\n  qkv bench --quick\n  qkv bench attend --threads 2\n"
      "  qkv bench backward --case gru\n  qkv bench --json --isa avx2 > avx2.jsonl");
  const auto serve = std::make_shared<bool>(false);
  app.add_flag("--serve", *serve, "Measure on request, for bench/versus.py: bench/run.h says how");
  return {&app, [options, serve] {
            if (*serve) return bench::serve(*options, std::cin, std::cout);
            if (isatty(STDERR_FILENO) != 0) options->progress = &std::cerr;
            return bench::run(*options, std::cout);
          }};
}

}  // namespace qkv::apps
