// bench/scores.cpp: what each score costs.
#include "bench/scores.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <qkv/attend.h>

#include "bench/group.h"
#include "bench/problem.h"

namespace qkv::bench {
namespace {

constexpr std::array<std::int64_t, 3> lengths = {512, 1024, 2048};
constexpr std::array<std::int64_t, 2> widths = {64, 128};
constexpr std::array<std::int64_t, 3> hidden_widths = {64, 128, 256};

// Of scaled_dot's standard deviation.
const auto own_score = [](const auto& tile) {
  for (std::int64_t j = 0; j < tile.keys; ++j) {
    for (std::int64_t i = 0; i < tile.queries; ++i) {
      auto sum = tile.query(i)[0] * 0;
      for (std::int64_t c = 0; c < tile.width; ++c) sum += tile.query(i)[c] * tile.key(j)[c];
      tile.at(i, j) = sum / 8;
    }
  }
};

using Make = Score (*)(Problem& problem, std::int64_t D);
struct Entry {
  const char* name;
  Make make;
};

// Bandwidths are such that some keys are near and most are not at the edge.
double bandwidth(std::int64_t D) { return std::sqrt(static_cast<double>(D)); }

const Entry entries[] = {
    {"scaled_dot", [](Problem&, std::int64_t) { return scaled_dot(); }},
    {"dot", [](Problem&, std::int64_t) { return dot(); }},
    {"cosine", [](Problem&, std::int64_t) { return cosine(); }},
    {"bilinear",
     [](Problem& problem, std::int64_t D) {
       problem.others.push_back(random_tensor({D, D}, 4, 1.0f / static_cast<float>(D)));
       return bilinear(problem.others.back());
     }},
    {"gaussian", [](Problem&, std::int64_t) { return gaussian(2); }},
    {"laplace", [](Problem&, std::int64_t) { return laplace(1); }},
    {"boxcar", [](Problem&, std::int64_t D) { return boxcar(bandwidth(D)); }},
    {"triangular", [](Problem&, std::int64_t D) { return triangular(bandwidth(D)); }},
    {"epanechnikov", [](Problem&, std::int64_t D) { return epanechnikov(bandwidth(D)); }},
    {"constant", [](Problem&, std::int64_t) { return constant(); }},
    {"yours", [](Problem&, std::int64_t) { return score_by(own_score); }},
};

Case score_case(const Entry& entry, std::int64_t T, std::int64_t D, int threads) {
  const auto problem = square_problem(heads_for(T), T, D, threads);
  problem->options.score = entry.make(*problem, D);
  Case made = square_case(entry.name, problem);
  if (problem->options.score.kind == Score::Kind::bilinear) {
    made.work += 2.0 * static_cast<double>(heads_for(T) * T * D * D);  // Mᵀq
  }
  return made;
}

Case additive_case(std::int64_t T, std::int64_t D, std::int64_t E, int threads) {
  const std::int64_t H = heads_for(T);
  const auto problem = square_problem(H, T, D, threads);
  const float size = 2.0f / std::sqrt(static_cast<float>(D));
  problem->others.push_back(random_tensor({E, D}, 4, size));
  problem->others.push_back(random_tensor({E, D}, 5, size));
  problem->others.push_back(random_tensor({E}, 6, 2.0f / std::sqrt(static_cast<float>(E))));
  problem->options.score = additive(problem->others[0], problem->others[1], problem->others[2]);
  Case made = square_case("additive", problem);
  made.shape.emplace_back("E", E);
  made.units = made.useful_pairs * E;
  // A hidden unit is an addition, a tanh (counted as one operation), a multiplication and an addition; then the
  // product with v and two projections.
  made.work = 4.0 * static_cast<double>(made.units) + made.work / 2 + 4.0 * static_cast<double>(H * T * D * E);
  return made;
}

}  // namespace

Bench scores_bench(const Options& options) {
  Bench bench{.name = "scores", .limit = Limit::operations, .groups = {}, .reference = "scaled_dot"};
  for (const std::int64_t D : widths) {
    for (const std::int64_t T : lengths) {
      if (options.T.value_or(T) != T || options.D.value_or(D) != D) continue;
      if (options.quick && !options.T && T == lengths.back()) continue;
      std::vector<CaseMaker> makers;
      for (const Entry& entry : entries) {
        makers.push_back({entry.name, [=, &options] { return score_case(entry, T, D, options.threads); }});
      }
      for (const std::int64_t E : hidden_widths) {
        if (D != widths.front() || (T != 512 && options.quick)) continue;
        makers.push_back({"additive", [=, &options] { return additive_case(T, D, E, options.threads); }});
      }
      add_group(bench, options, makers);
    }
  }
  return bench;
}

}  // namespace qkv::bench
