// base/utf8.h: one character after another of text that may not be valid UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace qkv {

struct Utf8Character {
  std::size_t bytes;  // how many the character takes; 1 for a byte that begins no valid character
  char32_t code;      // its code point; that byte's value where not valid
  bool valid;
};

// The first character of `text`, which must not be empty. Overlong forms and surrogates are not valid.
Utf8Character first_character(std::string_view text);

}  // namespace qkv
