// ops/reduce.h: sums over axes, in an order that threads do not change.
#pragma once

#include <array>

#include <qkv/tensor.h>

namespace qkv {

using AxisFlags = std::array<bool, Shape::max_rank>;

// The sum over the flagged axes times `factor`, computed in double precision, as a dense array of this shape, which has
// as many elements as the other axes together.
Tensor reduce_sum(const View& x, const AxisFlags& reduced, const Shape& shape, double factor = 1);

// The gradient of something of this shape that was broadcast to the gradient's shape: summed over what was repeated.
Tensor reduce_to(Tensor gradient, const Shape& shape);

}  // namespace qkv
