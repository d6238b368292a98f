// io/refuse.h: what is wrong with a file.
#pragma once

#include <initializer_list>

#include "base/message.h"

namespace qkv {

[[noreturn]] void refuse_joined(std::initializer_list<MessagePart> reason);

// Throws FileError with this reason, made of parts like a message. Who knows the path adds it (naming_file).
template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  refuse_joined({MessagePart(parts)...});
}

}  // namespace qkv
