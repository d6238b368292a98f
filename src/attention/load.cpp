// attention/load.cpp: conversion of rows between storage and computation.
#include "attention/load.h"

#include <algorithm>
#include <type_traits>

#include "kernels/convert.h"
#include "kernels/rows.h"
#include "tensor/elements.h"

namespace qkv {

template <class T>
void load_row(const View& source, std::int64_t offset, std::int64_t step, std::int64_t count, T* target) {
  if (source.dtype() == dtype_of<T>) {
    const T* from = source.as<T>() + offset;
    if (step == 1) {
      std::copy(from, from + count, target);
    } else {
      for (std::int64_t i = 0; i < count; ++i) target[i] = from[i * step];
    }
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    const std::uint16_t* from = source.as<std::uint16_t>() + offset;
    const auto& convert = kernels::convert_kernels();
    const auto widen = source.dtype() == Dtype::float16 ? convert.from_float16 : convert.from_bfloat16;
    if (step == 1) return widen(from, count, target);
    for (std::int64_t i = 0; i < count; ++i) widen(from + i * step, 1, target + i);
  }
}

template <class T>
void store_row(const T* source, std::int64_t count, T factor, const MutableView& target, std::int64_t offset,
               std::int64_t step) {
  if (target.dtype() == dtype_of<T>) {
    T* to = target.as<T>() + offset;
    if (step == 1) return kernels::row_kernels<T>().scale(source, static_cast<int>(count), factor, to);
    for (std::int64_t i = 0; i < count; ++i) to[i * step] = source[i] * factor;
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    std::uint16_t* to = target.as<std::uint16_t>() + offset;
    const auto& convert = kernels::convert_kernels();
    const auto narrow = target.dtype() == Dtype::float16 ? convert.to_float16 : convert.to_bfloat16;
    constexpr std::int64_t piece = 256;
    float scaled[piece];
    for (std::int64_t i = 0; i < count; i += piece) {
      const std::int64_t n = std::min(piece, count - i);
      kernels::row_kernels<float>().scale(source + i, static_cast<int>(n), factor, scaled);
      if (step == 1) {
        narrow(scaled, n, to + i);
      } else {
        for (std::int64_t j = 0; j < n; ++j) narrow(scaled + j, 1, to + (i + j) * step);
      }
    }
  }
}

template void load_row(const View&, std::int64_t, std::int64_t, std::int64_t, float*);
template void load_row(const View&, std::int64_t, std::int64_t, std::int64_t, double*);
template void store_row(const float*, std::int64_t, float, const MutableView&, std::int64_t, std::int64_t);
template void store_row(const double*, std::int64_t, double, const MutableView&, std::int64_t, std::int64_t);

}  // namespace qkv
