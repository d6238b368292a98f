// kernels/column-inl.h: how vectors lie in a block of scores or weights, in either layout; see block.h.
#if defined(QKV_KERNELS_COLUMN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_COLUMN_INL_H_
#undef QKV_KERNELS_COLUMN_INL_H_
#else
#define QKV_KERNELS_COLUMN_INL_H_
#endif

#include <algorithm>

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// The vectors of a block that hold the same rows, in the order of keys. There is one such column of vectors for every
// vector's length of lanes, or a single one where lanes are fewer.
template <class T>
struct Column {
  int rows;      // of a vector
  int distance;  // from vector to vector
  int keys;      // of a vector

  explicit Column(int lanes)
      : rows(std::min(lanes, lanes_of<T>)), distance(std::max(lanes, lanes_of<T>)), keys(lanes_of<T> / rows) {}
  int vectors(int all_keys) const { return (all_keys + keys - 1) / keys; }
};

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
