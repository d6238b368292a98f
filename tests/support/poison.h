// support/poison.h: numbers that spoil whatever touches them.
#pragma once

#include <cstdint>

#include <qkv/tensor.h>

#include "support/case.h"

namespace qkv::test {

struct Poison {
  const char* name;
  std::uint32_t bits;
};
inline constexpr Poison poisons[] = {
    {"NaN", 0x7fc00000},
    {"NaN with a payload", 0x7fc00001},
    {"negative NaN", 0xffc00000},
    {"NaN of all ones", 0xffffffff},
    {"signalling NaN", 0x7f800001},
    {"infinity", 0x7f800000},
    {"minus infinity", 0xff800000},
};

// Fills one row of every sequence and head of a float32 array [B, H, T, D] with these bits; copied as integers, so that
// signalling NaNs stay what they are.
inline void poison_row(const MutableView& x, std::int64_t row, std::uint32_t bits) {
  auto* data = x.as<std::uint32_t>();
  for (std::int64_t b = 0; b < x.extent(0); ++b) {
    for (std::int64_t h = 0; h < x.extent(1); ++h) {
      for (std::int64_t d = 0; d < x.extent(3); ++d) {
        data[b * x.stride(0) + h * x.stride(1) + row * x.stride(2) + d * x.stride(3)] = bits;
      }
    }
  }
}

// The masks that exclude.
inline constexpr MaskKind excluding_masks[] = {
    MaskKind::lengths, MaskKind::query_lengths, MaskKind::causal, MaskKind::window,     MaskKind::keep,
    MaskKind::drop,    MaskKind::keep_keys,     MaskKind::bias,   MaskKind::block_mask, MaskKind::keep_by};

}  // namespace qkv::test
