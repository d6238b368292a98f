// tensor/elements.h: single elements of views whose dtype is known only at run time. Not for hot loops.
#pragma once

#include <cstdint>

#include <qkv/error.h>
#include <qkv/tensor.h>

#include "base/message.h"

namespace qkv {

// The element at an offset counted in elements; the view holds int32 or int64.
inline std::int64_t integer_at(const View& view, std::int64_t offset) {
  return view.dtype() == Dtype::int32 ? view.as<std::int32_t>()[offset] : view.as<std::int64_t>()[offset];
}

// The same for a floating view.
inline double floating_at(const View& view, std::int64_t offset) {
  switch (view.dtype()) {
    case Dtype::float64:
      return view.as<double>()[offset];
    case Dtype::float16:
      return static_cast<double>(static_cast<float>(view.as<Float16>()[offset]));
    case Dtype::bfloat16:
      return static_cast<double>(static_cast<float>(view.as<BFloat16>()[offset]));
    default:
      return static_cast<double>(view.as<float>()[offset]);
  }
}

inline bool is_integer(Dtype dtype) { return dtype == Dtype::int32 || dtype == Dtype::int64; }

// Throws DtypeError: "gru: lengths must be int32 or int64, not float32".
inline void require_integers(const View& view, const char* name, const char* operation) {
  if (is_integer(view.dtype())) return;
  throw DtypeError(message(operation, ": ", name, " must be int32 or int64, not ", name_of(view.dtype())));
}

}  // namespace qkv
