// kernels/gradient_data.h: what the kernels of the backward pass write to, and how far from exact it may be.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include <gtest/gtest.h>

#include <qkv/isa.h>

#include "kernels/gradients.h"
#include "kernels/score_block.h"

namespace qkv::test {

template <class T>
const kernels::GradientKernels<T>& gradient_kernels() {
  return kernels::gradient_kernels<T>(current_isa());
}

// What rounding to nearest takes off at most, relatively.
template <class T>
inline constexpr long double rounding = std::numeric_limits<T>::epsilon() / 2;

// An array that nothing may be written in front of, which is seen when it ends, nor touched behind, which crashes. An
// array of whole vectors is aligned.
template <class T>
class Fenced {
 public:
  explicit Fenced(int count, T value = untouched<T>)
      : all_(static_cast<std::size_t>(fence + count), untouched<T>), count_(count) {
    std::fill_n(data(), count, value);
  }
  ~Fenced() {
    EXPECT_TRUE(std::all_of(all_.data(), data(), [](T x) { return x == untouched<T>; })) << "written in front";
  }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  T* data() const { return all_.data() + fence; }
  T& operator[](int i) const { return data()[i]; }
  int size() const { return count_; }

 private:
  static constexpr int fence = 64;  // whole vectors of any instruction set
  Guarded<T> all_;
  int count_;
};

// A sum as it should be. A kernel's may be off by the errors of its terms, and by the roundings that each term goes
// through on its way: those of its product, and one for every sum that it is part of.
struct ExactSum {
  long double value = 0, error = 0, magnitude = 0;
  void add(long double term, long double term_error = 0) { add(term, term_error, std::abs(term)); }
  void add(long double term, long double term_error, long double term_magnitude) {
    value += term;
    error += term_error;
    magnitude += term_magnitude;
  }
  template <class T>
  long double tolerance(int roundings) const {
    return error + roundings * rounding<T> * magnitude;
  }
};

}  // namespace qkv::test
