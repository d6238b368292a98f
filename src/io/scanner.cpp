// io/scanner.cpp: the header of a file, taken apart token by token.
#include "io/scanner.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/printable.h"
#include "io/refuse.h"

namespace qkv {

void Scanner::fail(std::string_view expected) const {
  refuse("its header is malformed at byte ", position_, ": expected ", expected, ", found ",
         position_ < text_.size() ? printable(rest(), 16) : "its end");
}

void Scanner::skip_blanks() { position_ = std::min(text_.find_first_not_of(blanks_, position_), text_.size()); }

bool Scanner::accept(std::string_view token) {
  skip_blanks();
  if (!rest().starts_with(token)) return false;
  skip(token.size());
  return true;
}

void Scanner::require(std::string_view token) {
  if (!accept(token)) fail(token);
}

std::int64_t Scanner::whole_number(const char* what) {
  skip_blanks();
  const std::string_view digits = rest();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const auto length = static_cast<std::size_t>(end - digits.data());
  if (error == std::errc::result_out_of_range) {
    refuse("its ", what, " ", Quoted{digits.substr(0, length)}, " does not fit in 64 bits");
  }
  if (error != std::errc()) fail("a whole number");
  if (digits.front() == '-') refuse("its ", what, " ", digits.substr(0, length), " is negative");
  if (digits.front() == '0' && length > 1) fail("a number without leading zeros");
  skip(length);
  return number;
}

}  // namespace qkv
