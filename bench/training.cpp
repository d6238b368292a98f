// bench/training.cpp: layers in training, forward and backward through the tape.
#include "bench/training.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <qkv/ops.h>

#include "bench/group.h"
#include "bench/tape.h"
#include "reference/gemm.h"
#include "reference/gru.h"

namespace qkv::bench {
namespace {

void forget_gradients(std::initializer_list<Variable> parameters) {
  for (const Variable& variable : parameters) variable.zero_grad();
}

struct GruProblem {
  static constexpr std::int64_t B = 64, T = 20, I = 256, H = 512;
  int threads;
  Variable x = parameter(filled({B, T, I}, 1, 1));
  GruWeights weights = {parameter(filled({3 * H, I}, 2, 0.05)), parameter(filled({3 * H, H}, 3, 0.05)),
                        parameter(filled({3 * H}, 4, 0.1)), parameter(filled({3 * H}, 5, 0.1))};
  Tensor upstream = filled({B, T, H}, 6, 1);

  void solve(const View& gradient) const {
    const WithThreads with(threads);
    forget_gradients({x, weights.W_ih, weights.W_hh, weights.b_ih, weights.b_hh});
    backward(gru(x, {weights}).all, gradient);
  }

  // The naive reference takes 10 s for all sequences. The gradient of a loss that looks at the first and the last one
  // only is that of these two alone.
  std::string check() const {
    Tensor some_x({2, T, I}), some_upstream({2, T, H}), upstream_of_all({B, T, H});
    const auto copy_ends = [](const View& from, const MutableView& to, std::int64_t width) {
      std::copy_n(from.as<float>(), width, to.as<float>());
      std::copy_n(from.as<float>() + (from.extent(0) - 1) * width, width, to.as<float>() + (to.extent(0) - 1) * width);
    };
    copy_ends(x.value(), some_x, T * I);
    copy_ends(upstream, some_upstream, T * H);
    copy_ends(upstream, upstream_of_all, T * H);
    const reference::GruSet set = {weights.W_ih.value(), weights.W_hh.value(), weights.b_ih.value(),
                                   weights.b_hh.value()};
    const auto states = reference::gru<double>(some_x, {{set}});
    const auto right = reference::gru_gradients(some_x, set, some_upstream);
    solve(upstream_of_all);
    Tensor some_dx({2, T, I}), some_states({2, T, H});
    copy_ends(x.grad(), some_dx, T * I);
    copy_ends(gru(x, {weights}).all.value(), some_states, T * H);
    constexpr double terms = 3 * H;
    return first_of({compare("state", some_states, states.all, terms), compare("dx", some_dx, right.dx, terms),
                     compare("dW_ih", weights.W_ih.grad(), right.dW_ih, terms),
                     compare("dW_hh", weights.W_hh.grad(), right.dW_hh, terms),
                     compare("db_ih", weights.b_ih.grad(), right.db_ih, terms),
                     compare("db_hh", weights.b_hh.grad(), right.db_hh, terms)});
  }
};

Case gru_case(int threads) {
  const auto problem = std::make_shared<GruProblem>(GruProblem{.threads = threads});
  constexpr auto B = GruProblem::B, T = GruProblem::T, I = GruProblem::I, H = GruProblem::H;
  return {.name = "gru",
          .shape = {{"B", B}, {"T", T}, {"I", I}, {"H", H}},
          .work = 3 * 2.0 * static_cast<double>(B * T * 3 * H * (I + H)),  // forward, by inputs, by weights
          .call = [problem] { problem->solve(problem->upstream); },
          .check = [problem] { return problem->check(); }};
}

struct LinearProblem {
  static constexpr std::int64_t rows = 900, in = 256, out = 4372;
  int threads;
  Variable x = parameter(filled({rows, in}, 1, 1)), W = parameter(filled({out, in}, 2, 1)),
           b = parameter(filled({out}, 3, 1));
  Tensor upstream = filled({rows, out}, 4, 1);

  void solve() const {
    const WithThreads with(threads);
    forget_gradients({x, W, b});
    backward(linear(x, W, b), upstream);
  }

  // Every so many rows of each product; of db, all.
  std::string check() const {
    solve();
    const auto some = [](const View& matrix, std::int64_t step) {
      return View(matrix.data(), matrix.dtype(), {matrix.extent(0) / step, matrix.extent(1)},
                  {step * matrix.stride(0), matrix.stride(1)});
    };
    const auto product = [&](const char* name, const View& a, const View& right, const View& got) {
      const std::int64_t step = a.extent(0) / 30;
      return compare(name, Tensor::copy_of(some(got, step)), reference::gemm<double>(some(a, step), right),
                     static_cast<double>(a.extent(1)));
    };
    const Variable y = linear(x, W);
    std::vector<double> db(static_cast<std::size_t>(out), 0.0);
    for (std::size_t i = 0; i < upstream.values<float>().size(); ++i) {
      db[i % static_cast<std::size_t>(out)] += static_cast<double>(upstream.values<float>()[i]);
    }
    return first_of({product("y", x.value(), W.value().swapped(0, 1), y.value()),
                     product("dx", upstream, W.value(), x.grad()),
                     product("dW", upstream.view().swapped(0, 1), x.value(), W.grad()),
                     compare("db", b.grad(), db, static_cast<double>(rows))});
  }
};

Case linear_case(int threads) {
  const auto problem = std::make_shared<LinearProblem>(LinearProblem{.threads = threads});
  constexpr auto M = LinearProblem::rows, K = LinearProblem::in, N = LinearProblem::out;
  return {.name = "linear",
          .shape = {{"M", M}, {"K", K}, {"N", N}},
          .work = 3 * 2.0 * static_cast<double>(M * K * N),
          .call = [problem] { problem->solve(); },
          .check = [problem] { return problem->check(); }};
}

}  // namespace

Case layer_case(const std::string& name, int threads) {
  return name == "gru" ? gru_case(threads) : linear_case(threads);
}

void add_training_cases(Bench& bench, const Options& options) {
  if (options.T || options.D) return;  // each has one size
  add_group(bench, options, {{"gru", [&] { return gru_case(options.threads); }}});
  add_group(bench, options, {{"linear", [&] { return linear_case(options.threads); }}});
}

}  // namespace qkv::bench
