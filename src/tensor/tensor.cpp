// tensor/tensor.cpp: arrays that own their memory.
#include <cstring>
#include <limits>

#include <qkv/error.h>
#include <qkv/tensor.h>

#include "base/aligned.h"
#include "base/checked.h"
#include "base/message.h"
#include "tensor/half.h"

namespace qkv {
namespace {

[[noreturn]] void refuse_conversion(Dtype from, Dtype to) {
  throw DtypeError(message("Tensor::copy_of: ", name_of(from), " does not convert to ", name_of(to)));
}

template <class T>
inline constexpr bool is_half = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (is_half<From>) {
    return converted<To>(static_cast<float>(value));
  } else if constexpr (is_half<To> && std::is_same_v<From, float>) {
    return To(value);
  } else if constexpr (std::is_same_v<To, Float16>) {
    return to_float16(value);
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return to_bfloat16(value);
  } else if constexpr (std::is_same_v<To, std::int32_t>) {
    if (value < std::numeric_limits<To>::min() || value > std::numeric_limits<To>::max()) {
      throw DtypeError(message("Tensor::copy_of: the element ", value, " does not fit in int32"));
    }
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

// One line along the last axis.
template <class To, class From>
void copy_line(const From* from, std::int64_t stride, std::int64_t count, To* to) {
  if constexpr (std::is_same_v<To, From>) {
    if (stride == 1 && count > 0) {  // memcpy takes no null pointers, not even for nothing
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) to[i] = converted<To>(from[i * stride]);
}

template <class To, class From>
To* copy_axis(const From* from, View view, int axis, To* to) {
  if (axis >= view.rank() - 1) {
    const std::int64_t count = view.rank() == 0 ? 1 : view.extent(axis);
    copy_line(from, view.rank() == 0 ? 1 : view.stride(axis), count, to);
    return to + count;
  }
  for (std::int64_t i = 0; i < view.extent(axis); ++i) to = copy_axis(from + i * view.stride(axis), view, axis + 1, to);
  return to;
}

template <class To, class From>
void copy_elements(View view, MutableView into) {
  copy_axis(view.as<From>(), view, 0, into.as<To>());
}

template <class From>
void copy_floating(View view, MutableView into) {
  switch (into.dtype()) {
    case Dtype::float32:
      return copy_elements<float, From>(view, into);
    case Dtype::float64:
      return copy_elements<double, From>(view, into);
    case Dtype::float16:
      return copy_elements<Float16, From>(view, into);
    case Dtype::bfloat16:
      return copy_elements<BFloat16, From>(view, into);
    default:
      refuse_conversion(view.dtype(), into.dtype());
  }
}

template <class From>
void copy_integers(View view, MutableView into) {
  switch (into.dtype()) {
    case Dtype::int32:
      return copy_elements<std::int32_t, From>(view, into);
    case Dtype::int64:
      return copy_elements<std::int64_t, From>(view, into);
    default:
      refuse_conversion(view.dtype(), into.dtype());
  }
}

void copy_into(View view, MutableView into) {
  switch (view.dtype()) {
    case Dtype::float32:
      return copy_floating<float>(view, into);
    case Dtype::float64:
      return copy_floating<double>(view, into);
    case Dtype::float16:
      return copy_floating<Float16>(view, into);
    case Dtype::bfloat16:
      return copy_floating<BFloat16>(view, into);
    case Dtype::int32:
      return copy_integers<std::int32_t>(view, into);
    case Dtype::int64:
      return copy_integers<std::int64_t>(view, into);
    case Dtype::boolean:
      if (into.dtype() != Dtype::boolean) refuse_conversion(view.dtype(), into.dtype());
      return copy_elements<bool, bool>(view, into);
  }
}

}  // namespace

Tensor::Tensor(const Shape& shape, Dtype dtype) {
  const std::int64_t bytes =
      checked_mul(shape.elements(), static_cast<std::int64_t>(size_of(dtype)), "Tensor: the size in bytes");
  memory_.reset(allocate_aligned(static_cast<std::size_t>(bytes)));
  view_ = MutableView(memory_.get(), dtype, shape);
}

Tensor Tensor::copy_of(View view) { return copy_of(view, view.dtype()); }

Tensor Tensor::copy_of(View view, Dtype dtype) {
  if (!view) return {};
  Tensor copy(view.shape(), dtype);
  if (view.elements() == 0) {
    // No element to copy, but a conversion that does not exist is refused all the same.
    const View nothing(nullptr, view.dtype(), {0});
    copy_into(nothing, MutableView(nullptr, dtype, {0}));
  } else {
    copy_into(view, copy);
  }
  return copy;
}

void Tensor::require_dtype(Dtype dtype) const {
  if (!*this)
    throw DtypeError(message("Tensor::values: the tensor is absent; it has no ", name_of(dtype), " elements"));
  if (dtype != this->dtype()) {
    throw DtypeError(message("Tensor::values: the elements are ", name_of(this->dtype()), ", not ", name_of(dtype)));
  }
}

void Tensor::Free::operator()(void* memory) const { free_aligned(memory); }

}  // namespace qkv
