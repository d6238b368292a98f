// base/printable.h: foreign text (paths, bytes of files) made fit for a one-line message.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// Quoted, control characters and invalid UTF-8 written as \xNN, cut after `limit` bytes with an ellipsis.
std::string printable(std::string_view text, std::size_t limit = 4096);

}  // namespace qkv
