// ops/broadcast.h: element by element, over arrays whose shapes are broadcast.
#pragma once

#include <qkv/tensor.h>

#include "kernels/arithmetic.h"

namespace qkv {

// NumPy's rule. Throws ShapeError naming the op and both shapes.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);

using kernels::Arithmetic;

// a op b as a dense array of their broadcast shape, which is given. One dtype.
Tensor combined(Arithmetic op, const View& a, const View& b, const Shape& shape);

void scale_in_place(Tensor& x, double factor);

}  // namespace qkv
