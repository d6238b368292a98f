// attention/records.h: the keys and values of a block, where they lie or copied as T.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/problem.h"
#include "attention/sight.h"
#include "attention/strategy.h"
#include "attention/workspace.h"
#include "base/function_ref.h"

namespace qkv {

template <class T>
class Records {
 public:
  // Rows of a block: row j at data + j * stride elements of `size` bytes.
  struct Rows {
    const std::byte* data;
    std::ptrdiff_t stride;
    std::ptrdiff_t size;
    bool staged;  // copied as T
    const std::byte* row(std::int64_t j) const { return data + j * stride * size; }
  };

  Records(const Problem& problem, const Strategy<T>& strategy, Workspace<T>& workspace)
      : problem_(problem), strategy_(strategy), w_(workspace) {}

  // Finds the keys and values of the block that the group looks at, or copies them. Keys that nobody sees are not read.
  // Null for `way`: no keys are needed.
  void fetch(const PanelGroup& group, Sight<T>& sight, const typename Strategy<T>::Way* way, bool values);
  // The same for the backward pass: values are found row by row as keys are. With `way`, keys are also spread into
  // strips, `product_width` columns of each; the answer is whether these are finite.
  bool fetch_for_gradients(const PanelGroup& group, Sight<T>& sight, const typename Strategy<T>::Way* way,
                           std::int64_t product_width, T* key_strips, std::ptrdiff_t strip_stride);
  const Rows& keys() const { return keys_; }
  const Rows& values() const { return values_; }
  std::ptrdiff_t strip_stride() const { return values_.staged ? w_.strip_stride : strategy_.panel->strip; }
  bool values_finite();

 private:
  bool begin(const PanelGroup& group, Sight<T>& sight);
  void fetch_keys(const PanelGroup& group, const typename Strategy<T>::Way* way, bool gaps);
  Rows copy(const View& view, std::int64_t head, std::int64_t width, bool gaps, T* target,
            std::ptrdiff_t target_stride) const;
  bool spread(const View& view, std::int64_t head, std::int64_t width, bool gaps, T* target,
              std::ptrdiff_t strip_stride) const;
  Rows in_place(const View& rows, std::int64_t head) const;
  void stage(const View& view, std::int64_t head, std::int64_t width, bool gaps,
             FunctionRef<void(std::int64_t row, std::int64_t count, const T* rows, std::ptrdiff_t stride)> keep) const;

  const Problem& problem_;
  const Strategy<T>& strategy_;
  Workspace<T>& w_;
  std::int64_t batch_ = 0;
  KeyRange block_{};
  Rows keys_{}, values_{};
  enum class Finite : std::uint8_t { unknown, yes, no } finite_ = Finite::unknown;
};

}  // namespace qkv
