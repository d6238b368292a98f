// attention/projection_gradients.cpp: gradients of projected rows and of the matrices that project them.
#include "attention/projection_gradients.h"

#include <algorithm>

#include <qkv/gemm.h>

#include "attention/gradient_rows.h"
#include "attention/load.h"
#include "attention/problem.h"

namespace qkv {
namespace {

// All rows of [B, heads, T, width] as one matrix, where they are evenly apart.
template <class AnyView>
AnyView as_matrix(const AnyView& x) {
  std::int64_t rows = 1, apart = x.extent(3);
  for (int axis = 2; axis >= 0; --axis) {
    if (x.extent(axis) == 1) continue;
    if (rows == 1) apart = x.stride(axis);
    if (x.stride(axis) != rows * apart) return {};
    rows *= x.extent(axis);
  }
  return AnyView(x.data(), x.dtype(), Shape{rows, x.extent(3)}, Strides{apart, x.stride(3)});
}

// The rows of [B, heads, T, width] that have a gradient in [B heads T, E], as one matrix. The others may be rows that
// must not be read, and are zeros.
template <class T>
class UsedRows {
 public:
  UsedRows(const View& x, const View& gradients) {
    const auto unused = [&](std::int64_t i) {
      const T* gradient = gradients.as<T>() + i * gradients.stride(0);
      return std::all_of(gradient, gradient + gradients.extent(1), [](T value) { return value == T(0); });
    };
    bool all = true;
    for (std::int64_t i = 0; i < gradients.extent(0); ++i) all &= !unused(i);
    if (all && x.dtype() == dtype_of<T> && x.stride(3) == 1) view_ = as_matrix(x);
    if (view_) return;
    copy_ = Tensor(Shape{gradients.extent(0), x.extent(3)}, dtype_of<T>);
    view_ = copy_;
    for (std::int64_t i = 0; i < gradients.extent(0); ++i) {
      const std::int64_t row = i % x.extent(2), head = i / x.extent(2);
      const RowOf at{head / x.extent(1), head % x.extent(1), row};
      if (!unused(i)) load_row(x, place(x, at), x.stride(3), x.extent(3), copy_.view().as<T>() + i * x.extent(3));
    }
  }
  operator View() const { return view_; }

 private:
  Tensor copy_;
  View view_;
};

// x' = W x: adds W^T dx' to dx, and dx'^T x to dW.
template <class T>
void project_rows_back(const View& x, const View& dx_made, const View& W, const MutableView& dx, const MutableView& dW,
                       int threads) {
  const View gradients = as_matrix(dx_made);
  if (dW) gemm(gradients.swapped(0, 1), UsedRows<T>(x, gradients), dW, {.accumulate = true, .threads = threads});
  if (!dx) return;
  if (const MutableView rows = as_matrix(dx)) {
    return gemm(gradients, W, rows, {.accumulate = true, .threads = threads});
  }
  for (std::int64_t i = 0; i < dx.extent(0) * dx.extent(1); ++i) {
    const std::int64_t b = i / dx.extent(1), h = i % dx.extent(1);
    gemm(HeadRows<T>(dx_made, b, h), W, head_of<T>(dx, b, h), {.accumulate = true, .threads = threads});
  }
}

}  // namespace

template <class T>
void project_back(const View& x, const View& dx_made, const Tensor& W, const MutableView& dx, Tensor* dW, int threads) {
  const std::int64_t heads = dx_made.extent(1), group = heads / std::max<std::int64_t>(x.extent(1), 1);
  const auto gradient_of = [&](std::int64_t h) {
    if (dW == nullptr) return MutableView();
    return MutableView(parameter_of<T>(*dW, W.shape()[0], h), Shape{W.shape()[1], W.shape()[2]});
  };
  if (W.shape()[0] == 1 && group == 1) {
    return project_rows_back<T>(x, dx_made, of_head(W, 0), dx, gradient_of(0), threads);
  }
  const auto one = [](const auto& view, std::int64_t b, std::int64_t h) { return view.slice(0, b, 1).slice(1, h, 1); };
  for (std::int64_t i = 0; i < dx_made.extent(0) * heads; ++i) {
    const std::int64_t b = i / heads, h = i % heads;
    project_rows_back<T>(one(x, b, h / group), one(dx_made, b, h), of_head(W, h),
                         dx ? one(dx, b, h / group) : MutableView(), gradient_of(h), threads);
  }
}

template void project_back<float>(const View&, const View&, const Tensor&, const MutableView&, Tensor*, int);
template void project_back<double>(const View&, const View&, const Tensor&, const MutableView&, Tensor*, int);

void project_keys_back(const ProjectedKeys& keys) {
  const auto project = keys.dprojections.dtype() == Dtype::float64 ? project_back<double> : project_back<float>;
  project(keys.k, keys.dprojections, keys.parameters.key_weights, keys.dk, keys.dkey_weights, keys.threads);
}

}  // namespace qkv
