// tensor/broadcast.h: a small array seen as a larger one.
#pragma once

#include <cstddef>

#include <qkv/tensor.h>

namespace qkv {

// Right-aligned, as NumPy does it: missing axes, and those whose extent differs, are repeated. Whether shapes fit is
// for the caller to check: the rank may not be larger than that of `shape`, and an extent that differs must be 1.
template <class AnyView>
AnyView broadcast_to(const AnyView& view, const Shape& shape) {
  Strides strides = {};
  const int more = shape.rank() - view.rank();
  for (int axis = more; axis < shape.rank(); ++axis) {
    const bool repeated = view.extent(axis - more) != shape[axis];
    strides[static_cast<std::size_t>(axis)] = repeated ? 0 : view.stride(axis - more);
  }
  return AnyView(view.data(), view.dtype(), shape, strides);
}

}  // namespace qkv
