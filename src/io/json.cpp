// io/json.cpp: as much JSON as headers of files are made of.
#include "io/json.h"

#include <charconv>

#include "base/utf8.h"

namespace qkv {
namespace {

// The letters after a backslash, and what they stand for.
constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";

}  // namespace

std::string JsonReader::string() {
  if (!accept("\"")) fail("a string");
  std::string text;
  for (;;) {
    const std::string_view left = rest();
    if (left.empty()) fail("a string that ends");
    if (left.front() == '"') break;
    if (left.front() == '\\') {
      append_utf8(text, escaped());
      continue;
    }
    const Utf8Character character = first_character(left);
    if (!character.valid) fail("valid UTF-8");
    if (character.code < 0x20) fail("no control character in a string");
    text += left.substr(0, character.bytes);
    skip(character.bytes);
  }
  skip(1);
  return text;
}

// Beyond the first 65536 code points, characters are escaped as two surrogates, as in UTF-16.
char32_t JsonReader::escaped() {
  const std::string_view left = rest();
  const std::size_t letter = left.size() < 2 ? std::string_view::npos : letters.find(left[1]);
  if (letter != std::string_view::npos) {
    skip(2);
    return static_cast<char32_t>(meanings[letter]);
  }
  const char32_t first = code_unit();
  if (first < 0xd800 || first > 0xdfff) return first;
  if (first > 0xdbff || !rest().starts_with("\\u")) fail("two surrogates, high and low");
  const char32_t second = code_unit();
  if (second < 0xdc00 || second > 0xdfff) fail("two surrogates, high and low");
  return 0x10000 + ((first & 0x3ff) << 10 | (second & 0x3ff));
}

char32_t JsonReader::code_unit() {
  const std::string_view left = rest().substr(0, 6);
  std::uint32_t unit = 0;
  if (left.size() < 6 || left[1] != 'u' ||
      std::from_chars(left.data() + 2, left.data() + 6, unit, 16).ptr != left.data() + 6) {
    fail("an escape that JSON knows");
  }
  skip(6);
  return unit;
}

void JsonReader::object(FunctionRef<void(std::string& key)> member) {
  require("{");
  if (accept("}")) return;
  do {
    std::string key = string();
    require(":");
    member(key);
  } while (accept(","));
  require("}");
}

void JsonReader::array(FunctionRef<void()> item) {
  require("[");
  if (accept("]")) return;
  do item();
  while (accept(","));
  require("]");
}

void append_json_string(std::string& text, std::string_view string) {
  constexpr char digits[] = "0123456789abcdef";
  text += '"';
  for (const char c : string) {
    const bool plain = static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
    if (plain) {
      text += c;
    } else if (const std::size_t letter = meanings.find(c); letter != std::string_view::npos) {
      text += '\\';
      text += letters[letter];
    } else {
      text += "\\u00";
      text += digits[c >> 4];
      text += digits[c & 15];
    }
  }
  text += '"';
}

}  // namespace qkv
