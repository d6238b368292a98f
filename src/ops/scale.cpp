// ops/scale.cpp: a variable times a number.
#include <qkv/ops.h>

#include "ops/broadcast.h"
#include "ops/check.h"

namespace qkv {

Variable scale(const Variable& x, double factor) {
  common_dtype("scale", {&x});
  Tensor y = Tensor::copy_of(x.value());
  scale_in_place(y, factor);
  // Backward: dx = factor dy. Keeps nothing.
  return record("scale", Variable(std::move(y)), {x}, [factor](Backward& back) {
    Tensor dx = back.take_upstream();
    scale_in_place(dx, factor);
    back.add(0, std::move(dx));
  });
}

}  // namespace qkv
