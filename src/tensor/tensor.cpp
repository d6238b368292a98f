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

// Copies one line along the last axis.
using CopyLine = void (*)(const void* from, std::int64_t stride, std::int64_t count, void* to);

template <class To, class From>
void copy_line(const void* from, std::int64_t stride, std::int64_t count, void* to) {
  if constexpr (std::is_same_v<To, From>) {
    if (stride == 1 && count > 0) {  // memcpy takes no null pointers, not even for nothing
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
      return;
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    static_cast<To*>(to)[i] = converted<To>(static_cast<const From*>(from)[i * stride]);
  }
}

template <class From>
CopyLine floating_line(Dtype from, Dtype to) {
  switch (to) {
    case Dtype::float32:
      return copy_line<float, From>;
    case Dtype::float64:
      return copy_line<double, From>;
    case Dtype::float16:
      return copy_line<Float16, From>;
    case Dtype::bfloat16:
      return copy_line<BFloat16, From>;
    default:
      refuse_conversion(from, to);
  }
}

template <class From>
CopyLine integer_line(Dtype from, Dtype to) {
  switch (to) {
    case Dtype::int32:
      return copy_line<std::int32_t, From>;
    case Dtype::int64:
      return copy_line<std::int64_t, From>;
    default:
      refuse_conversion(from, to);
  }
}

CopyLine line_of(Dtype from, Dtype to) {
  switch (from) {
    case Dtype::float32:
      return floating_line<float>(from, to);
    case Dtype::float64:
      return floating_line<double>(from, to);
    case Dtype::float16:
      return floating_line<Float16>(from, to);
    case Dtype::bfloat16:
      return floating_line<BFloat16>(from, to);
    case Dtype::int32:
      return integer_line<std::int32_t>(from, to);
    case Dtype::int64:
      return integer_line<std::int64_t>(from, to);
    case Dtype::boolean:
      break;
  }
  if (to != Dtype::boolean) refuse_conversion(from, to);
  return copy_line<bool, bool>;
}

// Walks the axes from `axis` on, line by line; the copy is dense.
struct Copying {
  const View& view;
  CopyLine line;
  std::ptrdiff_t from_size, to_size;

  std::byte* copy(const std::byte* from, int axis, std::byte* to) const {
    const std::int64_t count = view.rank() == 0 ? 1 : view.extent(axis);
    const std::int64_t stride = view.rank() == 0 ? 1 : view.stride(axis);
    if (axis >= view.rank() - 1) {
      line(from, stride, count, to);
      return to + count * to_size;
    }
    for (std::int64_t i = 0; i < count; ++i) to = copy(from + i * stride * from_size, axis + 1, to);
    return to;
  }
};

std::size_t bytes_of(const Shape& shape, Dtype dtype) {
  return static_cast<std::size_t>(
      checked_mul(shape.elements(), static_cast<std::int64_t>(size_of(dtype)), "Tensor: the size in bytes"));
}

}  // namespace

Tensor::Tensor(const Shape& shape, Dtype dtype) {
  memory_.reset(allocate_aligned(bytes_of(shape, dtype)));
  view_ = MutableView(memory_.get(), dtype, shape);
}

Tensor Tensor::uninitialized(const Shape& shape, Dtype dtype) {
  Tensor tensor;
  tensor.memory_.reset(allocate_dirty(bytes_of(shape, dtype)));
  tensor.view_ = MutableView(tensor.memory_.get(), dtype, shape);
  return tensor;
}

Tensor Tensor::copy_of(View view) { return copy_of(view, view.dtype()); }

Tensor Tensor::copy_of(View view, Dtype dtype) {
  if (!view) return {};
  const CopyLine line = line_of(view.dtype(), dtype);  // refuses, even where there is nothing to copy
  Tensor copy = uninitialized(view.shape(), dtype);
  if (view.elements() == 0) return copy;
  const Copying copying{view, line, static_cast<std::ptrdiff_t>(size_of(view.dtype())),
                        static_cast<std::ptrdiff_t>(size_of(dtype))};
  copying.copy(static_cast<const std::byte*>(view.data()), 0, static_cast<std::byte*>(copy.memory_.get()));
  return copy;
}

Tensor Tensor::reshaped(const Shape& shape) && {
  if (shape.elements() != elements()) {
    throw ShapeError(message("Tensor::reshaped: ", this->shape().text(), " has ", elements(), " elements and ",
                             shape.text(), " has ", shape.elements()));
  }
  const MutableView view(memory_.get(), dtype(), shape);
  Tensor result = std::move(*this);
  result.view_ = view;
  return result;
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
