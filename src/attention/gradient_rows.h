// attention/gradient_rows.h: rows of heads, for gradients that are found row by row.
#pragma once

#include <cstddef>
#include <cstdint>

#include <qkv/tensor.h>

namespace qkv {

// Rows [T, width] of a head as T, copied only where they have to be.
template <class T>
class HeadRows {
 public:
  HeadRows(const View& view, std::int64_t b, std::int64_t h) {
    const auto* first = static_cast<const std::byte*>(view.data());
    const std::int64_t at = b * view.stride(0) + h * view.stride(1);
    view_ = View(first + at * static_cast<std::int64_t>(size_of(view.dtype())), view.dtype(),
                 Shape{view.extent(2), view.extent(3)}, Strides{view.stride(2), view.stride(3)});
    if (view.dtype() == dtype_of<T> && view.stride(3) == 1) return;
    copy_ = Tensor::copy_of(view_, dtype_of<T>);
    view_ = copy_;
  }
  operator View() const { return view_; }
  const T* operator[](std::int64_t i) const { return view_.as<T>() + i * view_.stride(0); }

 private:
  Tensor copy_;
  View view_;
};

template <class T>
MutableView head_of(const MutableView& view, std::int64_t b, std::int64_t h) {
  return MutableView(view.as<T>() + b * view.stride(0) + h * view.stride(1), Shape{view.extent(2), view.extent(3)},
                     Strides{view.stride(2), view.stride(3)});
}

template <class T>
T& at(const MutableView& rows, std::int64_t i, std::int64_t c) {
  return rows.as<T>()[i * rows.stride(0) + c * rows.stride(1)];
}

template <class T>
double product(T a, T b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

// Where the gradient of a parameter of head h is added: [heads or 1, ...].
template <class T>
T* parameter_of(Tensor& gradient, std::int64_t heads, std::int64_t h) {
  return gradient.view().as<T>() + (heads == 1 ? 0 : h * (gradient.elements() / heads));
}

}  // namespace qkv
