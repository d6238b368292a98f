// qkv/isa.h: which instruction set the kernels use.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <qkv/export.h>

namespace qkv {

enum class Isa : std::uint8_t { baseline, avx2, avx512 };

QKV_API std::string_view name_of(Isa isa);
QKV_API std::vector<Isa> supported_isas();  // on this machine, best first
QKV_API Isa current_isa();                  // the best, unless set
// For measuring and testing: all calls that start from now on use this one. Throws OptionError if not supported here.
QKV_API void set_isa(Isa isa);

}  // namespace qkv
