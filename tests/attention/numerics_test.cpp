// attention/numerics_test.cpp: how far attend is from the exact result, beside a plain float32 computation.
// docs/numerics.md states the figures that this test prints.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
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

struct Sizes {
  std::int64_t H, Tq, Tk, D;
  bool causal;
};

// Root mean square no larger than that of a plain float32 computation, maximum at most twice: over normal data, on
// every instruction set. The errors of a row hang together and a root mean square over few rows is noisy, so short
// sequences get more heads.
TEST(Numerics, ErrorsAreNoLargerThanThoseOfAPlainFloat32Computation) {
  std::vector<Sizes> all = {{64, 128, 128, 64, false},  {2, 512, 512, 64, false},  {1, 1024, 1024, 64, false},
                            {64, 128, 128, 128, false}, {2, 512, 512, 128, false}, {1, 1024, 1024, 128, false},
                            {2, 512, 512, 64, true},    {2, 512, 512, 128, true},  {64, 1, 4096, 64, false},
                            {64, 1, 4096, 128, false},  {16, 4, 16384, 64, false}};
  if (full_matrix()) {
    all.insert(
        all.end(),
        {{4, 1024, 1024, 64, true}, {2, 2048, 2048, 64, false}, {4, 512, 512, 80, false}, {4, 512, 512, 40, false}});
  }
  std::printf("%-9s %3s %5s %6s %4s %-7s  %10s %10s %6s  %10s %10s %6s\n", "isa", "H", "Tq", "Tk", "D", "mask", "rms",
              "plain", "ratio", "max", "plain", "ratio");
  for (const auto& [H, Tq, Tk, D, causal] : all) {
    Case c = {.B = 1, .H = H, .Hk = H, .Tq = Tq, .Tk = Tk, .D = D, .Dv = D};
    if (causal) c.masks = {MaskKind::causal};
    const Problem p(c);
    const auto exact = reference::attend<double>(p.q(), p.k(), p.v(), p.options());
    const auto plain = reference::attend<float>(p.q(), p.k(), p.v(), p.options());
    const Error yardstick = error_of(plain.out, exact.out);
    for (const Isa isa : tested_isas()) {
      const WithIsa with(isa);
      const Attended got = attend(p.q(), p.k(), p.v(), p.options());
      const Error error = error_of(reference::elements<float>(got.out), exact.out);
      std::printf("%-9s %3ld %5ld %6ld %4ld %-7s  %10.2e %10.2e %6.2f  %10.2e %10.2e %6.2f\n",
                  std::string(qkv::name_of(isa)).c_str(), H, Tq, Tk, D, causal ? "causal" : "none", error.rms,
                  yardstick.rms, error.rms / yardstick.rms, error.max, yardstick.max, error.max / yardstick.max);
      EXPECT_LE(error.rms, yardstick.rms) << qkv::name_of(isa) << ", " << c.text();
      EXPECT_LE(error.max, 2 * yardstick.max) << qkv::name_of(isa) << ", " << c.text();
    }
  }
}

}  // namespace
}  // namespace qkv::test
