// support/refused.h: calls that must be refused before they read anything.
#pragma once

#include <initializer_list>
#include <string>

#include <qkv/attend.h>

#include "support/errors.h"

namespace qkv::test {

// A view that claims a shape over one element.
inline View claim(const Shape& shape, Dtype dtype = Dtype::float32) {
  static const double element = 1;
  return View(&element, dtype, shape, Strides{});
}

// Shapes that fit each other.
struct Right {
  View q = claim({2, 4, 6, 8}), k = claim({2, 2, 9, 8}), v = claim({2, 2, 9, 5});
};

// attend and plan refuse the same, each under its own name.
template <class E>
void expect_refused(const View& q, const View& k, const View& v, const AttendOptions& options,
                    std::initializer_list<std::string> parts) {
  expect_error<E>([&] { attend(q, k, v, options); }, parts);
  expect_error<E>([&] { attend(q, k, v, options); }, {"attend"});
  expect_error<E>([&] { plan(q, k, v, options); }, parts);
  expect_error<E>([&] { plan(q, k, v, options); }, {"plan"});
}
template <class E>
void expect_refused(const AttendOptions& options, std::initializer_list<std::string> parts) {
  const Right r;
  expect_refused<E>(r.q, r.k, r.v, options, parts);
}

}  // namespace qkv::test
