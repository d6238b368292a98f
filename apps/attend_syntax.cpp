// apps/attend_syntax.cpp: the little languages in which options of `qkv attend` are given.
#include "attend_syntax.h"

#include <charconv>
#include <string_view>

namespace qkv::apps {
namespace {

// Whether the whole text is a number.
template <class T>
bool parse(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::int64_t whole_number(std::string_view text, const std::string& option) {
  std::int64_t number = 0;
  if (!parse(text, number)) throw CLI::ValidationError(option, "'" + std::string(text) + "' is not a whole number");
  return number;
}

}  // namespace

std::vector<std::int64_t> whole_numbers(const std::string& text, const std::string& option) {
  std::vector<std::int64_t> numbers;
  for (std::string_view rest = text;; rest.remove_prefix(rest.find(',') + 1)) {
    numbers.push_back(whole_number(rest.substr(0, rest.find(',')), option));
    if (rest.find(',') == std::string_view::npos) return numbers;
  }
}

std::uint64_t seed_of(const std::string& text, const std::string& option) {
  std::uint64_t seed = 0;
  if (!parse<std::uint64_t>(text, seed)) {
    throw CLI::ValidationError(option, "'" + text + "' is not a whole number from 0 to 2^64 - 1");
  }
  return seed;
}

AttendArguments::Pair pair_of_numbers(const std::string& text, const std::string& option) {
  const std::vector<std::int64_t> numbers = whole_numbers(text, option);
  if (numbers.size() != 2) {
    throw CLI::ValidationError(option, "'" + text + "' should be two whole numbers with a comma between them");
  }
  return {numbers[0], numbers[1]};
}

AttendArguments::Align alignment(const std::string& text, const std::string& option) {
  constexpr std::string_view number = "offset=", file = "offsets=";
  if (text.empty()) return {};  // a bare --causal
  if (text == "top_left") return {top_left(), {}};
  if (text == "bottom_right") return {bottom_right(), {}};
  if (text.starts_with(number)) {
    return {offset(whole_number(std::string_view(text).substr(number.size()), option)), {}};
  }
  if (text.starts_with(file) && text.size() > file.size()) return {{}, text.substr(file.size())};
  throw CLI::ValidationError(option, "'" + text + "' is none of top_left, bottom_right, offset=N, offsets=FILE");
}

Weigh weighing(const std::string& text, const std::string& option) {
  constexpr std::string_view best = "top_k=";
  if (text == "softmax") return softmax();
  if (text == "normalize") return normalize();
  if (text == "raw") return raw();
  if (text == "hard") return hard();
  if (text == "uniform") return uniform();
  if (text.starts_with(best)) return top_k(whole_number(std::string_view(text).substr(best.size()), option));
  throw CLI::ValidationError(option, "'" + text + "' is none of softmax, normalize, raw, hard, uniform, top_k=N");
}

void set_bandwidth(AttendArguments& given, const std::string& text) {
  double number = 0;
  if (parse(text, number)) {
    given.bandwidth = number;
  } else {
    given.bandwidths = text;
  }
}

}  // namespace qkv::apps
