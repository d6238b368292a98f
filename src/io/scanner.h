// io/scanner.h: the header of a file, taken apart token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qkv {

// Walks through `text`, skipping `blanks` before every token. Throws FileError with the reason only: what was expected,
// and where; who knows the path adds it.
class Scanner {
 public:
  Scanner(std::string_view text, std::string_view blanks) : text_(text), blanks_(blanks) {}

  bool accept(std::string_view token);
  void require(std::string_view token);
  // A whole number from 0 to 2^63 - 1 without leading zeros; `what` it is, for messages.
  std::int64_t whole_number(const char* what);

  void skip_blanks();
  std::string_view rest() const { return text_.substr(position_); }
  void skip(std::size_t bytes) { position_ += bytes; }
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  std::string_view text_, blanks_;
  std::size_t position_ = 0;
};

}  // namespace qkv
