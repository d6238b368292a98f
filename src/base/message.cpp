// base/message.cpp: the texts of errors.
#include "base/message.h"

#include <locale>
#include <ostream>
#include <sstream>

#include "base/printable.h"

namespace qkv {
namespace {

std::ostream& operator<<(std::ostream& out, const Quoted& quoted) { return out << printable(quoted.text, 200); }

}  // namespace

std::string joined(std::initializer_list<MessagePart> parts) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // the program's own locale might write 65536 as 65.536
  for (const MessagePart& part : parts) std::visit([&](const auto& value) { text << value; }, part.value_);
  return text.str();
}

}  // namespace qkv
