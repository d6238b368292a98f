// io/json.h: as much JSON as headers of files are made of: objects, arrays, strings and whole numbers.
#pragma once

#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "io/scanner.h"

namespace qkv {

// Reads JSON strictly (RFC 8259, UTF-8), one value after the other, as the caller expects them: a value of another kind
// is an error, nothing nests deeper than the caller asks, and numbers never pass through floating point.
class JsonReader : public Scanner {
 public:
  explicit JsonReader(std::string_view text) : Scanner(text, " \t\n\r") {}

  // Escapes undone; valid UTF-8.
  std::string string();
  // Calls `member` for each key of an object; it reads the value, and sees to it that no key comes twice.
  void object(FunctionRef<void(std::string& key)> member);
  // Calls `item` for each item of an array; it reads the item.
  void array(FunctionRef<void()> item);

 private:
  char32_t escaped();
  char32_t code_unit();
};

// Appends `string` in quotes, with what JSON wants escaped. It must be valid UTF-8.
void append_json_string(std::string& text, std::string_view string);

}  // namespace qkv
