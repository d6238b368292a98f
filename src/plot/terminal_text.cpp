// plot/terminal_text.cpp: labels that line up in a terminal.
#include "plot/terminal_text.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace qkv {
namespace {

struct Range {
  char32_t first, last;
};
// Combining marks, joiners and variation selectors of the scripts that use them with Latin, Greek, Cyrillic, Hebrew
// and Arabic letters.
constexpr Range no_columns[] = {{0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x064b, 0x065f},
                                {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f}, {0x202a, 0x202e},
                                {0x2060, 0x2069}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
                                {0xfeff, 0xfeff}};
constexpr Range two_columns[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xac00, 0xd7a3},
                                 {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
                                 {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1faff}, {0x20000, 0x3fffd}};

template <std::size_t count>
bool contains(const Range (&ranges)[count], char32_t code) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const Range& range) { return code >= range.first && code <= range.last; });
}

int columns_of(char32_t code) { return contains(no_columns, code) ? 0 : contains(two_columns, code) ? 2 : 1; }

// Besides the control characters, those that turn the direction of writing: they would reorder the rest of the line.
bool upsets_terminal(const Utf8Character& character) {
  const char32_t code = character.code;
  return !character.valid || code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

int columns_of(std::string_view text) {
  int columns = 0;
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    columns += columns_of(character.code);
    text.remove_prefix(character.bytes);
  }
  return columns;
}

std::string clean(std::string_view text, int limit) {
  std::string result;
  std::size_t cut = 0;  // the longest beginning that leaves room for an ellipsis
  int columns = 0;
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    if (upsets_terminal(character)) {
      result += "�";
      columns += 1;
    } else {
      result += text.substr(0, character.bytes);
      columns += columns_of(character.code);
    }
    if (columns > limit) return result.substr(0, cut) + "…";
    if (columns < limit) cut = result.size();
    text.remove_prefix(character.bytes);
  }
  return result;
}

std::string padded(const std::string& text, int columns, double align) {
  const int spaces = std::max(0, columns - columns_of(text));
  const int before = static_cast<int>(spaces * align);
  return std::string(static_cast<std::size_t>(before), ' ') + text +
         std::string(static_cast<std::size_t>(spaces - before), ' ');
}

}  // namespace qkv
