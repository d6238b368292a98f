// ops/arithmetic.cpp: sums, differences, products and quotients with broadcasting.
#include <qkv/ops.h>

#include "ops/broadcast.h"
#include "ops/check.h"
#include "ops/reduce.h"

namespace qkv {
namespace {

Variable computed(const char* name, Arithmetic op, const Variable& a, const Variable& b) {
  common_dtype(name, {&a, &b});
  common_dtype(name, {&b});
  return Variable(combined(op, a.value(), b.value(), broadcast_shape(name, a.shape(), b.shape())));
}

Tensor product(const View& dy, const Variable& x) { return combined(Arithmetic::mul, dy, x.value(), dy.shape()); }

// Backward of both sum and difference: da = dy, db = dy or -dy, summed over what was repeated. Keeps nothing.
Variable record_sum(const char* name, const Variable& y, const Variable& a, const Variable& b, double sign_of_b) {
  return record(name, y, {a, b}, [a_shape = a.shape(), b_shape = b.shape(), sign_of_b](Backward& back) {
    Tensor dy = back.take_upstream();
    if (back.needs(0)) back.add(0, reduce_to(back.needs(1) ? dy.clone() : std::move(dy), a_shape));
    if (back.needs(1)) {
      Tensor db = reduce_to(std::move(dy), b_shape);
      if (sign_of_b != 1) scale_in_place(db, sign_of_b);
      back.add(1, std::move(db));
    }
  });
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  return record_sum("add", computed("add", Arithmetic::add, a, b), a, b, 1);
}

Variable sub(const Variable& a, const Variable& b) {
  return record_sum("sub", computed("sub", Arithmetic::sub, a, b), a, b, -1);
}

Variable mul(const Variable& a, const Variable& b) {
  const Variable y = computed("mul", Arithmetic::mul, a, b);
  // Backward: da = dy b, db = dy a, summed over what was repeated. Keeps each factor that the other one's gradient
  // needs.
  return record("mul", y, {a, b},
                [a_shape = a.shape(), b_shape = b.shape(), a = b.needs_grad() ? a.detach() : Variable(),
                 b = a.needs_grad() ? b.detach() : Variable()](Backward& back) {
                  const View dy = back.upstream();
                  if (back.needs(0)) back.add(0, reduce_to(product(dy, b), a_shape));
                  if (back.needs(1)) back.add(1, reduce_to(product(dy, a), b_shape));
                });
}

Variable div(const Variable& a, const Variable& b) {
  const Variable y = computed("div", Arithmetic::div, a, b);
  // Backward: da = dy / b, db = -dy / b * y, summed over what was repeated. Keeps b, and y for its gradient.
  return record("div", y, {a, b},
                [a_shape = a.shape(), b = b.detach(), y = b.needs_grad() ? y : Variable()](Backward& back) {
                  const View dy = back.upstream();
                  Tensor da = combined(Arithmetic::div, dy, b.value(), dy.shape());
                  if (back.needs(1)) {
                    Tensor db = reduce_to(product(da, y), b.shape());
                    scale_in_place(db, -1);
                    back.add(1, std::move(db));
                  }
                  if (back.needs(0)) back.add(0, reduce_to(std::move(da), a_shape));
                });
}

}  // namespace qkv
