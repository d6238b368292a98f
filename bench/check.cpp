// bench/check.cpp: compares outputs with the reference of the tests, at as many rows as time allows.
#include "bench/check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/message.h"
#include "reference/attend.h"
#include "reference/gemm.h"

namespace qkv::bench {
namespace {

// The reference takes a millisecond and more for a long row; sixteen rows spread over a head, the first and the last
// among them, meet every kind of tile.
constexpr std::int64_t most_rows = 16;

// Outputs are averages of numbers up to 1 in size. Float32 is off by some 1e-6 with the scores used here; one key
// that is missed or seen wrongly among 16384 is off by more than this.
constexpr double attend_tolerance = 1e-5;

// Distance between the rows that are compared.
std::int64_t step_between(std::int64_t rows) { return std::max<std::int64_t>(1, (rows - 1) / (most_rows - 1)); }

std::vector<std::int64_t> some_rows(std::int64_t rows) {
  std::vector<std::int64_t> some;
  for (std::int64_t i = 0; i < rows - 1; i += step_between(rows)) some.push_back(i);
  some.push_back(rows - 1);
  return some;
}

// Not std::abs(a - b) > tolerance: a NaN is wrong too.
bool is_near(float value, double reference, double tolerance) {
  return std::abs(static_cast<double>(value) - reference) <= tolerance;
}

}  // namespace

std::string check_attend(View q, View k, View v, const AttendOptions& options, View out) {
  const reference::Attention<double> attention(q, k, v, options);
  const auto [B, H, Hk, Tq, Tk, D, Dv] = attention.extents();
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (const std::int64_t i : some_rows(Tq)) {
        const auto reference = attention.row(b, h, i);
        const std::vector<double>& row = reference.out;
        double weights = 0;  // that do not sum to 1 make errors as much larger
        for (const double weight : reference.weights) weights += std::abs(weight);
        const float* got = out.as<float>() + b * out.stride(0) + h * out.stride(1) + i * out.stride(2);
        for (std::int64_t d = 0; d < Dv; ++d) {
          const double expected = row[static_cast<std::size_t>(d)];
          if (!is_near(got[d], expected, attend_tolerance * std::max(1.0, weights))) {
            return message("output [", b, ", ", h, ", ", i, ", ", d, "] is ", got[d], ", not ", expected);
          }
        }
      }
    }
  }
  return {};
}

std::string check_gemm(View a, View b, View c) {
  const std::int64_t M = a.extent(0), K = a.extent(1), N = b.extent(1);
  const std::int64_t step = step_between(M), rows = (M - 1) / step + 1;
  const std::int64_t first = (M - 1) % step;  // so that the last row is among them
  const View some_a(a.as<float>() + first * a.stride(0), {rows, K}, {step * a.stride(0), a.stride(1)});
  const std::vector<double> expected = reference::gemm<double>(some_a, b);
  // Rounding errors of K products up to 1 in size stay well below this; one product that is missed or added
  // twice is off by much more.
  const double tolerance = static_cast<double>(K) * 0x1p-22;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < N; ++j) {
      const std::int64_t row = first + i * step;
      const float got = c.as<float>()[row * c.stride(0) + j * c.stride(1)];
      const double right = expected[static_cast<std::size_t>(i * N + j)];
      if (!is_near(got, right, tolerance)) {
        return message("output [", row, ", ", j, "] is ", got, ", not ", right);
      }
    }
  }
  return {};
}

}  // namespace qkv::bench
