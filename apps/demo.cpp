// apps/demo.cpp: `qkv demo`: attention to look at.
#include "demo.h"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "command.h"

namespace qkv::apps {
namespace {

int run(const std::string& what) {
  const bool color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  if (what != "sentences") show_students(color);
  if (what.empty()) std::cout << "\n";
  if (what != "students") show_sentences(color);
  return 0;
}

}  // namespace

Command demo_command(CLI::App& qkv) {
  CLI::App& app = *qkv.add_subcommand("demo", "Attention to look at: a table of students, three padded sentences");
  const auto what = std::make_shared<std::string>();
  app.add_option("what", *what, "What is shown; both if not said")
      ->check(CLI::IsMember({"students", "sentences"}))
      ->option_text("students|sentences");
  app.footer(
      "Colours appear where the output is a terminal and NO_COLOR is not set.\n\n"
      "Examples:\n  qkv demo\n  qkv demo students\n  NO_COLOR=1 qkv demo");
  return {&app, [what] { return run(*what); }};
}

}  // namespace qkv::apps
