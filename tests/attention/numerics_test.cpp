// attention/numerics_test.cpp: how far attend is from the exact result, beside a plain float32 computation.
// docs/numerics.md states the figures that this test prints.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

#include "reference/attend.h"
#include "reference/elements.h"
#include "support/isas.h"
#include "support/matrix.h"
#include "support/problem.h"

namespace qkv::test {
namespace {

struct Error {
  double rms = 0, max = 0;
};

template <class T>
Error error_of(const std::vector<T>& got, const std::vector<double>& exact) {
  double squares = 0, largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - exact[i]);
    squares += error * error;
    largest = std::max(largest, error);
  }
  return {std::sqrt(squares / static_cast<double>(exact.size())), largest};
}

struct Shape4 {
  std::int64_t Tq, Tk, D;
  bool causal;
};

// Root mean square no larger than that of a plain float32 computation, maximum at most twice: over normal data, every
// instruction set.
TEST(Numerics, ErrorsAreNoLargerThanThoseOfAPlainFloat32Computation) {
  std::vector<Shape4> shapes = {{128, 128, 64, false},  {512, 512, 64, false},  {1024, 1024, 64, false},
                                {128, 128, 128, false}, {512, 512, 128, false}, {512, 512, 64, true},
                                {512, 512, 128, true},  {1, 4096, 64, false},   {1, 4096, 128, false},
                                {4, 16384, 64, false}};
  if (full_matrix()) {
    shapes.insert(shapes.end(), {{1024, 1024, 128, false},
                                 {1024, 1024, 64, true},
                                 {2048, 2048, 64, false},
                                 {512, 512, 80, false},
                                 {512, 512, 40, false}});
  }
  std::printf("%-9s %5s %6s %4s %-7s  %10s %10s %6s  %10s %10s %6s\n", "isa", "Tq", "Tk", "D", "mask", "rms", "plain",
              "ratio", "max", "plain", "ratio");
  for (const Shape4& s : shapes) {
    Case c = {.B = 1, .H = s.Tq < 16 ? 8 : 1, .Hk = s.Tq < 16 ? 8 : 1, .Tq = s.Tq, .Tk = s.Tk, .D = s.D, .Dv = s.D};
    if (s.causal) c.masks = {MaskKind::causal};
    const Problem p(c);
    const auto exact = reference::attend<double>(p.q(), p.k(), p.v(), p.options());
    const auto plain = reference::attend<float>(p.q(), p.k(), p.v(), p.options());
    const Error yardstick = error_of(plain.out, exact.out);
    on_every_isa([&] {
      const Attended got = attend(p.q(), p.k(), p.v(), p.options());
      const Error error = error_of(reference::elements<float>(got.out), exact.out);
      std::printf("%-9s %5ld %6ld %4ld %-7s  %10.2e %10.2e %6.2f  %10.2e %10.2e %6.2f\n",
                  std::string(qkv::name_of(current_isa())).c_str(), s.Tq, s.Tk, s.D, s.causal ? "causal" : "none",
                  error.rms, yardstick.rms, error.rms / yardstick.rms, error.max, yardstick.max,
                  error.max / yardstick.max);
      EXPECT_LE(error.rms, yardstick.rms) << c.text();
      EXPECT_LE(error.max, 2 * yardstick.max) << c.text();
    });
  }
}

}  // namespace
}  // namespace qkv::test
