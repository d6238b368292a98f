// ops/check.cpp: what ops ask of their arguments.
#include "ops/check.h"

#include <string>

#include <qkv/error.h>

#include "base/message.h"

namespace qkv {

void refuse_shapes(const char* op, const char* rule, std::initializer_list<NamedShape> shapes) {
  std::string text = std::string(op) + ": " + rule + ":";
  const char* separator = " ";
  for (const NamedShape& named : shapes) {
    text += separator + std::string(named.name) + " " + named.shape.text();
    separator = ", ";
  }
  throw ShapeError(text);
}

Dtype common_dtype(const char* op, std::initializer_list<const Variable*> variables) {
  const Dtype dtype = (*variables.begin())->dtype();
  for (const Variable* variable : variables) {
    if (*variable && variable->dtype() != dtype) {
      throw DtypeError(message(op, ": all variables must have one dtype, and they are ", name_of(dtype), " and ",
                               name_of(variable->dtype())));
    }
  }
  if (!**variables.begin()) throw ShapeError(message(op, ": a variable is absent"));
  return dtype;
}

int resolve_axis(const char* op, int axis, const Shape& shape) {
  const int resolved = axis < 0 ? axis + shape.rank() : axis;
  if (resolved < 0 || resolved >= shape.rank()) {
    throw ShapeError(message(op, ": there is no axis ", axis, " in shape ", shape.text()));
  }
  return resolved;
}

Variable dense(const Variable& variable) {
  return variable.value().is_dense() ? variable.detach() : Variable(Tensor::copy_of(variable.value()));
}

Shape leading(const Shape& shape) {
  return Shape(std::span<const std::int64_t>(shape.begin(), static_cast<std::size_t>(shape.rank() - 1)));
}

Shape with_last(const Shape& shape, std::int64_t extent) {
  std::vector<std::int64_t> extents(shape.begin(), shape.end());
  extents.push_back(extent);
  return Shape(extents);
}

View as_matrix(const View& dense) {
  return View(dense.data(), dense.dtype(), Shape{leading(dense.shape()).elements(), dense.shape().back()});
}

MutableView as_matrix(const MutableView& dense) {
  return MutableView(dense.data(), dense.dtype(), Shape{leading(dense.shape()).elements(), dense.shape().back()});
}

}  // namespace qkv
