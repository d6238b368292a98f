// support/layout.h: the same numbers in memory that is laid out in other ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <qkv/tensor.h>

namespace qkv::test {

enum class Layout : std::uint8_t {
  dense,          // [B, H, T, D]
  heads_inside,   // [B, T, H, D] seen as [B, H, T, D]
  padded_rows,    // rows with a gap behind each
  spread,         // every second element: the last axis is not dense
  reversed_rows,  // T runs backwards
  reversed_last,  // D runs backwards
  shared_heads,   // stride 0 along the heads: all heads are the first
  shared_batch,   // stride 0 along the batch: all sequences are the first
  unaligned,      // dense, but starting one element behind an aligned address
};
inline constexpr Layout all_layouts[] = {Layout::dense,        Layout::heads_inside,  Layout::padded_rows,
                                         Layout::spread,       Layout::reversed_rows, Layout::reversed_last,
                                         Layout::shared_heads, Layout::shared_batch,  Layout::unaligned};
// Those where every element has a place of its own, so that results may be written there.
inline constexpr Layout writable_layouts[] = {Layout::dense,    Layout::heads_inside,  Layout::padded_rows,
                                              Layout::spread,   Layout::reversed_rows, Layout::reversed_last,
                                              Layout::unaligned};

std::string_view name_of(Layout layout);

// An array of rank 4 in memory of its own. Gaps hold bytes 0xFF: NaN in every floating dtype.
class LaidOut {
 public:
  LaidOut(const Shape& shape, Dtype dtype, Layout layout);
  LaidOut(View from, Layout layout);  // a copy; where the layout shares elements, those at index 0

  MutableView view() const { return view_; }
  // Whether every byte that is in a gap still holds what it held at first.
  bool gaps_are_untouched() const;

 private:
  std::vector<std::byte> memory_;
  MutableView view_;
};

}  // namespace qkv::test
