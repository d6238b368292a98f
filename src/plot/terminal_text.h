// plot/terminal_text.h: labels that line up in a terminal.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// How many columns of a terminal the text takes: combining marks take none, East Asian wide characters and emoji two.
// Good for any single characters; sequences that a terminal joins into one sign (flags, families) count as their parts.
int columns_of(std::string_view text);

// The text with what would upset the terminal (control characters, invalid UTF-8) replaced by "�", and cut to `limit`
// columns, the last of them then an ellipsis.
std::string clean(std::string_view text, int limit);

// The clean text with spaces before and after it, `columns` columns in all. align: 0 left, 1 right, 0.5 centre.
std::string padded(const std::string& text, int columns, double align);

}  // namespace qkv
