// apps/command.h: what every subcommand of `qkv` is made of.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace qkv::apps {

struct Command {
  CLI::App* arguments;       // its flags, filled in by parsing
  std::function<int()> run;  // returns the exit code; throws what main turns into one line and exit code 1
};

Command attend_command(CLI::App& qkv);
Command demo_command(CLI::App& qkv);
Command inspect_command(CLI::App& qkv);
Command bench_command(CLI::App& qkv);

// An option that takes one of a few words, each of which means a value.
template <class T>
using Choices = std::vector<std::pair<std::string, T>>;

template <class T, class Target>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Target& target, const Choices<T>& choices,
                        const std::string& help) {
  std::string words;
  for (const auto& choice : choices) words += (words.empty() ? "" : "|") + choice.first;
  const auto set = [&target, choices, words, name](const std::string& word) {
    const auto chosen = std::find_if(choices.begin(), choices.end(), [&](const auto& c) { return c.first == word; });
    if (chosen == choices.end()) throw CLI::ValidationError(name, "'" + word + "' is none of " + words);
    target = chosen->second;
  };
  return app.add_option_function<std::string>(name, set, help)->option_text(words);
}

}  // namespace qkv::apps
