// apps/attend_syntax.h: the little languages in which options of `qkv attend` are given.
//
// `option` is the name for messages. All throw CLI::ValidationError.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <qkv/weigh.h>

#include "attend_options.h"

namespace qkv::apps {

// "128,0,5"
std::vector<std::int64_t> whole_numbers(const std::string& text, const std::string& option);

// "7"
std::uint64_t seed_of(const std::string& text, const std::string& option);

// "128,0"
AttendArguments::Pair pair_of_numbers(const std::string& text, const std::string& option);

// "top_left", "bottom_right", "offset=3", "offsets=FILE"; nothing is an alignment without a name.
AttendArguments::Align alignment(const std::string& text, const std::string& option);

// "softmax", ..., "top_k=8"
Weigh weighing(const std::string& text, const std::string& option);

// "0.5", or else a file.
void set_bandwidth(AttendArguments& given, const std::string& text);

}  // namespace qkv::apps
