// base/message.h: the texts of errors.
#pragma once

#include <locale>
#include <sstream>
#include <string>

namespace qkv {

// All arguments, printed one after another: message("attend: H = ", 6, " is no multiple of Hk = ", 4).
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // the program's own locale might write 65536 as 65.536
  (text << ... << parts);
  return text.str();
}

}  // namespace qkv
