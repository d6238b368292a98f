// base/utf8.h: one character after another of text that may not be valid UTF-8, and how text is made of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qkv {

struct Utf8Character {
  std::size_t bytes;  // how many the character takes; 1 for a byte that begins no valid character
  char32_t code;      // its code point; that byte's value where not valid
  bool valid;
};

// The first character of `text`, which must not be empty. Overlong forms and surrogates are not valid.
Utf8Character first_character(std::string_view text);

bool is_utf8(std::string_view text);

// A code point that is no surrogate and at most 0x10ffff.
void append_utf8(std::string& text, char32_t code);

}  // namespace qkv
