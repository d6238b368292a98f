// qkv/tensor.h: shapes and strides over anybody's memory (View, MutableView) and over our own (Tensor).
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <qkv/dtype.h>
#include <qkv/export.h>

namespace qkv {

// Up to eight extents, held inline. Extents are never negative.
class QKV_API Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);     // throws ShapeError: rank over 8, extent below 0
  explicit Shape(std::span<const std::int64_t> extents);  // the same

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return extents_[static_cast<std::size_t>(axis)]; }
  std::int64_t back() const { return extents_[static_cast<std::size_t>(rank_ - 1)]; }
  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + rank_; }

  std::int64_t elements() const;  // the product; 1 for rank 0. Throws ShapeError if it overflows.
  std::string text() const;       // "[2, 8, 128, 64]"

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<std::int64_t, max_rank> extents_ = {};
  int rank_ = 0;
};

// Distances between neighbours along each axis, in elements. They may be 0 (broadcast) or negative.
using Strides = std::array<std::int64_t, Shape::max_rank>;

// The strides of a dense row-major array. Throws ShapeError if its size in elements overflows.
QKV_API Strides dense_strides(const Shape& shape);

template <class R>
concept ElementRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && requires {
  DtypeOf<std::remove_cv_t<std::ranges::range_value_t<R>>>::value;
};

// A read-only window on memory that somebody else owns and keeps alive. Cheap to copy; pass it by value.
// The dtype is a run-time value. No element is touched by making a View.
class QKV_API View {
 public:
  View() = default;  // absent: data() is null, rank 0; an optional argument that was not given

  // A dense row-major array. `data` may be null only where there are no elements.
  View(const void* data, Dtype dtype, const Shape& shape);
  // Any strides, in elements. `data` points at the element whose indices are all 0.
  View(const void* data, Dtype dtype, const Shape& shape, const Strides& strides);

  template <class T>
  requires requires { DtypeOf<T>::value; }
  View(const T* data, const Shape& shape) : View(data, dtype_of<T>, shape) {}
  template <class T>
  requires requires { DtypeOf<T>::value; }
  View(const T* data, const Shape& shape, const Strides& strides) : View(data, dtype_of<T>, shape, strides) {}

  // A container or span, as the given shape; throws ShapeError where the counts of elements differ.
  template <ElementRange R>
  View(const R& elements, const Shape& shape)
      : View(std::ranges::data(elements), dtype_of<std::remove_cv_t<std::ranges::range_value_t<R>>>, shape) {
    require_count(std::ranges::size(elements));
  }

  explicit operator bool() const { return present_; }
  Dtype dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  std::int64_t extent(int axis) const { return shape_[axis]; }
  std::int64_t stride(int axis) const { return strides_[static_cast<std::size_t>(axis)]; }
  std::int64_t elements() const { return present_ ? shape_.elements() : 0; }
  const void* data() const { return data_; }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }
  bool is_dense() const;  // row-major with no gaps

  // The same elements with two axes exchanged: [B, T, H, D] seen as [B, H, T, D] is swapped(1, 2).
  View swapped(int axis_a, int axis_b) const;
  // Elements first .. first + count - 1 along an axis. Throws ShapeError outside the extent.
  View slice(int axis, std::int64_t first, std::int64_t count) const;
  // One axis taken apart into two: [B, T, H*D] becomes [B, T, H, D] with split(2, H).
  View split(int axis, std::int64_t outer) const;

 protected:
  void require_count(std::size_t count) const;

  const void* data_ = nullptr;
  Dtype dtype_ = Dtype::float32;
  bool present_ = false;
  Shape shape_;
  Strides strides_ = {};
};

class Tensor;

// A window for results. The same as View, and its elements may be written. No two elements may overlap.
class QKV_API MutableView : public View {
 public:
  MutableView() = default;
  MutableView(void* data, Dtype dtype, const Shape& shape) : View(data, dtype, shape) {}
  MutableView(void* data, Dtype dtype, const Shape& shape, const Strides& strides)
      : View(data, dtype, shape, strides) {}
  template <class T>
  requires(!std::is_const_v<T> && requires { DtypeOf<T>::value; }) MutableView(T* data, const Shape& shape)
      : View(data, shape) {}
  template <class T>
  requires(!std::is_const_v<T> && requires { DtypeOf<T>::value; })
      MutableView(T* data, const Shape& shape, const Strides& strides)
      : View(data, shape, strides) {}
  template <ElementRange R>
  requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
      MutableView(R& elements, const Shape& shape)
      : View(elements, shape) {}
  MutableView(Tensor& tensor);

  void* data() const { return const_cast<void*>(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data());
  }

  MutableView swapped(int axis_a, int axis_b) const { return MutableView(View::swapped(axis_a, axis_b)); }
  MutableView slice(int axis, std::int64_t first, std::int64_t count) const {
    return MutableView(View::slice(axis, first, count));
  }
  MutableView split(int axis, std::int64_t outer) const { return MutableView(View::split(axis, outer)); }

 private:
  explicit MutableView(const View& view) : View(view) {}
};

// Owns a dense row-major array, aligned to 64 bytes; arrays of 4 MB and more ask the system for 2 MB pages.
// Moves; copies only by clone(). Elements start as zeros.
class QKV_API Tensor {
 public:
  Tensor() = default;                                                 // absent, like View()
  explicit Tensor(const Shape& shape, Dtype dtype = Dtype::float32);  // throws ShapeError, std::bad_alloc

  Tensor(Tensor&& other) noexcept
      : memory_(std::move(other.memory_)), view_(std::exchange(other.view_, MutableView())) {}
  Tensor& operator=(Tensor&& other) noexcept {
    memory_ = std::move(other.memory_);
    view_ = std::exchange(other.view_, MutableView());
    return *this;
  }

  // The same with elements that are anything: for memory that will be written whole. Large ones may get memory that
  // this thread let go of before.
  static Tensor uninitialized(const Shape& shape, Dtype dtype);

  // A dense copy of any view, as its own dtype or converted (floating to floating, integer to integer).
  static Tensor copy_of(View view);
  static Tensor copy_of(View view, Dtype dtype);
  template <class T>
  static Tensor of(std::initializer_list<T> elements, const Shape& shape) {
    return copy_of(View(std::span<const T>(elements.begin(), elements.size()), shape));
  }
  Tensor clone() const { return copy_of(*this); }
  // The same memory under another shape of as many elements; this tensor is absent then. Throws ShapeError.
  Tensor reshaped(const Shape& shape) &&;

  operator View() const { return view_; }
  MutableView view() { return view_; }
  View view() const { return view_; }

  explicit operator bool() const { return static_cast<bool>(view_); }
  Dtype dtype() const { return view_.dtype(); }
  const Shape& shape() const { return view_.shape(); }
  std::int64_t elements() const { return view_.elements(); }
  template <class T>
  std::span<T> values() {
    require_dtype(dtype_of<T>);
    return {view_.as<T>(), static_cast<std::size_t>(elements())};
  }
  template <class T>
  std::span<const T> values() const {
    require_dtype(dtype_of<T>);
    return {view_.as<T>(), static_cast<std::size_t>(elements())};
  }

 private:
  void require_dtype(Dtype dtype) const;

  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  MutableView view_;
};

inline MutableView::MutableView(Tensor& tensor) : MutableView(tensor.view()) {}

}  // namespace qkv
