// apps/attend.cpp: `qkv attend`: attention from files to files or to the standard output.
#include <iostream>
#include <memory>
#include <string>

#include <qkv/attend.h>
#include <qkv/error.h>
#include <qkv/io.h>

#include "arrays.h"
#include "attend_inputs.h"
#include "attend_options.h"
#include "command.h"

namespace qkv::apps {
namespace {

constexpr const char* more_help =
    R"(Arrays are .npy files (float32, float16, float64), or small ones as text: a line is a row, numbers are separated by
commas in .csv, tabs in .tsv and blanks in .txt files, a blank line begins the next matrix, # begins a comment.
q [B, H, Tq, D], k [B, Hk, Tk, D], v [B, Hk, Tk, Dv] (Hk divides H); rank 3 is [B, T, D], rank 2 is [T, D].
Text is float64, or float32 beside .npy files that are not float64; in text, true and false are 1 and 0, and a line of
lengths is a sequence. Nothing is written before everything has been computed.

ALIGN says where query i stands among the keys, at position p: top_left is p = i; bottom_right puts the last query at
the last key (of its length); offset=N is p = i + N; offsets=FILE has one offset per sequence, [B]. With as many
queries as keys it need not be said.

Examples:
  qkv attend q.npy k.npy v.npy -o out.npy
  qkv attend q.txt k.txt v.txt --score gaussian --bandwidth 0.5 --weights -
  qkv attend q.txt k.txt v.txt --score cosine --weigh hard --minimum 0.9
  qkv attend q.npy k.npy v.npy -o out.npy --lengths lens.npy --top 3 --top-indices best.npy
  qkv attend q.npy k.npy v.npy -o out.npy --causal bottom_right --window 128,0 --alibi slopes.npy
  qkv attend q.npy k.npy v.npy -o out.npy --score additive --wq wq.npy --wk wk.npy --w w.npy
  qkv attend q.npy k.npy v.npy -o out.npy --keep mask.npy --on-empty uniform --dropout 0.1 --seed 7
  qkv attend q.npy k.npy v.npy --causal top_left --plan)";

void write_files(const AttendArguments& given, const Attended& attended) {
  std::string written;
  for (const AttendResult& result : attend_results) {
    const AttendArguments::Path& path = given.*result.file;
    if (path.empty() || is_printed(path)) continue;
    try {
      write_npy(path, attended.*result.array);
    } catch (const Error& error) {
      if (written.empty()) throw;
      throw FileError(std::string(error.what()) + " (already written:" + written + ")");
    }
    written += " " + path.string();
  }
}

// Several results get headings, which are comments to those who read the text as an array.
void print(const AttendArguments& given, const Attended& attended) {
  int count = 0;
  for (const AttendResult& result : attend_results) count += is_printed(given.*result.file) ? 1 : 0;
  bool first = true;
  for (const AttendResult& result : attend_results) {
    if (!is_printed(given.*result.file)) continue;
    const std::string name = std::string(result.option).substr(2);
    const View array = attended.*result.array;
    if (!first) std::cout << "\n";
    if (count > 1 && array.rank() <= 2) std::cout << "# " << name << "\n";
    std::cout << text_of(array, name);
    first = false;
  }
}

void print_plan(const Plan& plan) {
  std::cout << "kernel   " << plan.kernel << ": " << plan.why << "\n"
            << "isa      " << plan.isa << "\n"
            << "panel    " << plan.panel << " queries\n"
            << "block    " << plan.block << " keys\n"
            << "tasks    " << plan.tasks << "\n"
            << "threads  " << plan.threads << "\n"
            << "memory   " << plan.peak_bytes << " bytes besides inputs and results\n";
}

int run(AttendArguments& given) {
  if (given.out.empty()) given.out = "-";
  require_sense(given);
  const AttendInputs inputs(given);
  if (given.only_plan) {
    print_plan(plan(inputs.q, inputs.k, inputs.v, inputs.options));
    return 0;
  }
  const Attended attended = attend(inputs.q, inputs.k, inputs.v, inputs.options);
  write_files(given, attended);
  print(given, attended);
  return 0;
}

}  // namespace

Command attend_command(CLI::App& qkv) {
  CLI::App& app = *qkv.add_subcommand("attend", "Attention over arrays in .npy or text files");
  const auto given = std::make_shared<AttendArguments>();
  add_attend_options(app, *given);
  app.footer(more_help);
  return {&app, [given] { return run(*given); }};
}

}  // namespace qkv::apps
