// base/printable.cpp: foreign text made fit for a one-line message.
#include "base/printable.h"

#include "base/utf8.h"

namespace qkv {
namespace {

constexpr bool is_control(char32_t code) {
  // C0, DEL, C1, and the line and paragraph separators.
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  constexpr char digits[] = "0123456789abcdef";
  std::string result = "'";
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Character character = first_character(text.substr(i));
    if (i + character.bytes > limit) {
      result += "…";
      break;
    }
    for (std::size_t end = i + character.bytes; i < end; ++i) {
      if (character.valid && !is_control(character.code)) {
        result += text[i];
      } else {
        const auto byte = static_cast<unsigned char>(text[i]);
        result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
      }
    }
  }
  return result + "'";
}

}  // namespace qkv
