// apps/main.cpp: the command `qkv`: finds the subcommand, and turns errors into one line and an exit code.
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include <qkv/version.h>

#include "command.h"

namespace {

enum ExitCode { success = 0, failure = 1, wrong_usage = 2 };

// One line without control characters, whatever the text holds. The library names its operation first ("attend: ..."),
// as `who` does already.
void complain(const std::string& who, std::string text) {
  const std::string operation = who.substr(who.find(' ') + 1) + ": ";
  if (text.starts_with(operation)) text.erase(0, operation.size());
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  std::cerr << who << ": " << text << "\n";
}

std::string name_of(const CLI::App& qkv) {
  std::string name = "qkv";
  for (const CLI::App* sub : qkv.get_subcommands()) name += " " + sub->get_name();
  return name;
}

int complain_of_usage(const std::string& who, const std::string& text) {
  complain(who, text + " (" + who + " --help shows the usage)");
  return wrong_usage;
}

int run(const CLI::App& qkv, const std::vector<qkv::apps::Command>& commands) {
  for (const qkv::apps::Command& command : commands) {
    if (!*command.arguments) continue;
    try {
      const int code = command.run();
      std::cout.flush();
      if (std::cout) return code;
      complain(name_of(qkv), "cannot write to the standard output");
    } catch (const CLI::ParseError& error) {
      return complain_of_usage(name_of(qkv), error.what());
    } catch (const std::bad_alloc&) {
      complain(name_of(qkv), "there is not enough memory");
    } catch (const std::exception& error) {
      complain(name_of(qkv), error.what());
    }
    return failure;
  }
  return wrong_usage;  // not reached: parsing demands one of them
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App qkv("qkv: attention for C++. Every query asks the keys and gets back a weighted sum of the values.", "qkv");
  qkv.set_version_flag("--version", "qkv " + std::string(qkv::version), "Print the version and leave");
  qkv.set_help_flag("-h,--help", "Print this help and leave");
  qkv.require_subcommand(1);
  qkv.footer(
      "`qkv COMMAND --help` says more about a command, with examples.\n"
      "Exit codes: 0 success, 1 an error, 2 wrong usage.");
  const std::vector<qkv::apps::Command> commands = {qkv::apps::attend_command(qkv), qkv::apps::demo_command(qkv),
                                                    qkv::apps::inspect_command(qkv), qkv::apps::bench_command(qkv)};
  try {
    qkv.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return qkv.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    // CLI11 says of a word that is no command only that a command is missing.
    const bool unknown = qkv.get_subcommands().empty() && argc > 1 && argv[1][0] != '-';
    return complain_of_usage(name_of(qkv),
                             unknown ? "there is no command '" + std::string(argv[1]) + "'" : error.what());
  }
  return run(qkv, commands);
}
