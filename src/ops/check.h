// ops/check.h: what ops ask of their arguments.
#pragma once

#include <initializer_list>
#include <vector>

#include <qkv/autograd.h>
#include <qkv/tensor.h>

namespace qkv {

struct NamedShape {
  const char* name;
  const Shape& shape;
};

// Throws ShapeError: "linear: the rule: x [2, 3], W [4, 5]".
[[noreturn]] void refuse_shapes(const char* op, const char* rule, std::initializer_list<NamedShape> shapes);

// All that are there have one dtype, which is returned; the first must be there. Throws DtypeError.
Dtype common_dtype(const char* op, std::initializer_list<const Variable*> variables);

// Counted from the front, for an axis that may be counted from the last. Throws ShapeError.
int resolve_axis(const char* op, int axis, const Shape& shape);

// A view that sees dense memory, and a variable, a constant, that keeps it: its own, or a copy.
Variable dense(const Variable& variable);

// A dense array as a matrix: the last axis, and all others together. Rank 1 is one row.
View as_matrix(const View& dense);
MutableView as_matrix(const MutableView& dense);

// All but the last axis.
Shape leading(const Shape& shape);
// The same extents and one more at the end.
Shape with_last(const Shape& shape, std::int64_t extent);

}  // namespace qkv
