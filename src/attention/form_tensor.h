// attention/form_tensor.h: an array that lives for one call, as a rule, in memory that the thread keeps.
#pragma once

#include <cstdint>

#include <qkv/tensor.h>

#include "base/aligned.h"

namespace qkv {

// Like Tensor, but its elements start as whatever was there.
class FormTensor {
 public:
  FormTensor() = default;
  FormTensor(const Shape& shape, Dtype dtype)
      : memory_(static_cast<std::size_t>(shape.elements()) * size_of(dtype)), view_(memory_.get(), dtype, shape) {}

  explicit operator bool() const { return static_cast<bool>(view_); }
  operator View() const { return view_; }
  const MutableView& view() const { return view_; }
  const Shape& shape() const { return view_.shape(); }
  std::int64_t bytes() const { return view_.elements() * static_cast<std::int64_t>(size_of(view_.dtype())); }

 private:
  Reused memory_;
  MutableView view_;
};

}  // namespace qkv
