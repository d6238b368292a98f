// io/safetensors_dtype.h: the elements that safetensors files may have.
#pragma once

#include <optional>
#include <string_view>

#include <qkv/dtype.h>

namespace qkv {

struct SafetensorsDtype {
  std::string_view name;
  int bits;
  std::optional<Dtype> dtype;  // where qkv has such elements
};

// In the order of the format's own writer, which takes the last ones first.
inline constexpr SafetensorsDtype safetensors_dtypes[] = {
    {"BOOL", 8, Dtype::boolean},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"F16", 16, Dtype::float16},
    {"BF16", 16, Dtype::bfloat16},
    {"I32", 32, Dtype::int32},
    {"U32", 32, {}},
    {"F32", 32, Dtype::float32},
    {"C64", 64, {}},
    {"F64", 64, Dtype::float64},
    {"I64", 64, Dtype::int64},
    {"U64", 64, {}},
};

}  // namespace qkv
