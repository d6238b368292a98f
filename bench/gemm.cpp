// bench/gemm.cpp: matrix products: large squares, and the shapes of linear layers.
#include "bench/gemm.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <qkv/gemm.h>

#include "bench/check.h"
#include "bench/data.h"

namespace qkv::bench {
namespace {

struct Extent {
  std::int64_t M, K, N;
};
constexpr std::array<Extent, 3> squares = {{{512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}}};
constexpr std::array<Extent, 2> layers = {{{64, 512, 1536}, {900, 256, 4372}}};

struct Problem {
  Tensor a, b, c;
  PackedMatrix packed;
  GemmOptions options;
  bool is_packed = false;

  void solve() {
    if (is_packed) {
      gemm(a, packed, c, options);
    } else {
      gemm(a, b, c, options);
    }
  }
  std::string check() {
    solve();
    return check_gemm(a, b, c);
  }
};

Case gemm_case(std::string_view name, const Extent& extent, int threads) {
  const auto [M, K, N] = extent;
  auto problem = std::make_shared<Problem>();
  problem->a = Tensor({M, K});
  problem->b = Tensor({K, N});
  problem->c = Tensor({M, N});
  fill(problem->a.values<float>(), 1);
  fill(problem->b.values<float>(), 2);
  problem->options.threads = threads;
  if (name == "packed") {
    problem->packed = PackedMatrix(problem->b);
    problem->is_packed = true;
  }
  return {.name = std::string(name),
          .shape = {{"M", M}, {"K", K}, {"N", N}},
          .work = 2.0 * static_cast<double>(M) * static_cast<double>(K) * static_cast<double>(N),
          .call = [problem] { problem->solve(); },
          .check = [problem] { return problem->check(); }};
}

}  // namespace

Bench gemm_bench(const Options& options) {
  Bench bench{.name = "gemm", .limit = Limit::operations, .groups = {}};
  const auto add_group = [&](const Extent& extent, auto names) {
    if (options.T.value_or(extent.M) != extent.M || options.D.value_or(extent.N) != extent.N) return;
    Group group{.cases = {}, .peaks = {fma_peak(options.threads)}};
    for (const std::string_view name : names) {
      if (!options.only_case.empty() && options.only_case != name) continue;
      group.cases.push_back(gemm_case(name, extent, options.threads));
    }
    if (!group.cases.empty()) bench.groups.push_back(std::move(group));
  };
  for (const Extent& extent : squares) add_group(extent, std::array{"square"});
  for (const Extent& extent : layers) add_group(extent, std::array{"packed", "per_call"});
  return bench;
}

}  // namespace qkv::bench
