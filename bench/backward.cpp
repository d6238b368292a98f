// bench/backward.cpp: what the gradients of attention cost, besides the forward pass; and training steps of layers.
#include "bench/backward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <qkv/attend_backward.h>
#include <qkv/attend_op.h>
#include <qkv/error.h>

#include "base/message.h"
#include "bench/group.h"
#include "bench/problem.h"
#include "bench/training.h"

namespace qkv::bench {
namespace {

constexpr std::array<std::int64_t, 6> lengths = {64, 128, 256, 512, 1024, 2048};
constexpr std::array<std::int64_t, 2> widths = {64, 128};
constexpr std::array<std::int64_t, 3> hidden_widths = {64, 128, 256};

// Queries, keys and values with an answer to them, and the gradient that comes from behind.
struct Backward {
  Tensor q, k, v, dout, Wq, Wk, w;
  AttendOptions options;
  Attended answer;
  Tensor dq, dk, dv;

  void prepare() {
    options.want_backward = true;
    answer = attend(q, k, v, options);
    dq = Tensor(q.shape());
    dk = Tensor(k.shape());
    dv = Tensor(v.shape());
  }
  void solve() { attend_backward_into(q, k, v, answer, {.out = dout}, {dq, dk, dv}, options); }
  std::string check();
};

// One head in double precision, pair by pair, from the forward pass's log-sum-exps and outputs.
class NaiveHead {
 public:
  NaiveHead(const Backward& of, std::int64_t head, bool causal)
      : of_(of), head_(head), causal_(causal), T_(of.q.shape()[2]), Tk_(of.k.shape()[2]), D_(of.q.shape()[3]) {}

  std::vector<double> dq(std::int64_t i) const {
    std::vector<double> sum(static_cast<std::size_t>(D_), 0.0);
    for (std::int64_t j = 0; j < Tk_; ++j) add(i, j, slope(i, j), of_.k, j, of_.Wq, sum);
    return sum;
  }
  std::vector<double> dk(std::int64_t j) const {
    std::vector<double> sum(static_cast<std::size_t>(D_), 0.0);
    for (std::int64_t i = 0; i < T_; ++i) add(i, j, slope(i, j), of_.q, i, of_.Wk, sum);
    return sum;
  }
  std::vector<double> dv(std::int64_t j) const {
    std::vector<double> sum(static_cast<std::size_t>(D_), 0.0);
    for (std::int64_t i = 0; i < T_; ++i) {
      for (std::int64_t c = 0; c < D_; ++c) sum[static_cast<std::size_t>(c)] += weight(i, j) * at(of_.dout, i, c);
    }
    return sum;
  }
  double at(const Tensor& x, std::int64_t row, std::int64_t c) const {
    return static_cast<double>(View(x).as<float>()[(head_ * x.shape()[2] + row) * x.shape()[3] + c]);
  }

 private:
  static double element(const Tensor& W, std::int64_t row, std::int64_t c) {
    return static_cast<double>(View(W).as<float>()[row * W.shape()[1] + c]);
  }
  double unit(std::int64_t i, std::int64_t j, std::int64_t e) const {
    double sum = 0;
    for (std::int64_t c = 0; c < D_; ++c) sum += element(of_.Wq, e, c) * at(of_.q, i, c);
    for (std::int64_t c = 0; c < D_; ++c) sum += element(of_.Wk, e, c) * at(of_.k, j, c);
    return std::tanh(sum);
  }
  double hidden(std::int64_t e) const { return static_cast<double>(View(of_.w).as<float>()[e]); }
  double score(std::int64_t i, std::int64_t j) const {
    double sum = 0;
    if (of_.w) {
      for (std::int64_t e = 0; e < of_.w.elements(); ++e) sum += hidden(e) * unit(i, j, e);
      return sum;
    }
    for (std::int64_t c = 0; c < D_; ++c) sum += at(of_.q, i, c) * at(of_.k, j, c);
    return sum / std::sqrt(static_cast<double>(D_));
  }
  double weight(std::int64_t i, std::int64_t j) const {
    if (causal_ && j > i) return 0;
    return std::exp(score(i, j) - static_cast<double>(View(of_.answer.state).as<float>()[head_ * T_ + i]));
  }
  double slope(std::int64_t i, std::int64_t j) const {
    double of_weight = 0;
    for (std::int64_t c = 0; c < D_; ++c) {
      of_weight += at(of_.dout, i, c) * (at(of_.v, j, c) - at(of_.answer.out, i, c));
    }
    return weight(i, j) * of_weight;
  }
  // The derivative of score(i, j) by one of the two rows, times `slope`.
  void add(std::int64_t i, std::int64_t j, double slope, const Tensor& other, std::int64_t row, const Tensor& W,
           std::vector<double>& sum) const {
    for (std::int64_t e = 0; of_.w && slope != 0 && e < of_.w.elements(); ++e) {
      const double t = unit(i, j, e), factor = slope * hidden(e) * (1 - t * t);
      for (std::int64_t c = 0; c < D_; ++c) sum[static_cast<std::size_t>(c)] += factor * element(W, e, c);
    }
    for (std::int64_t c = 0; !of_.w && c < D_; ++c) {
      sum[static_cast<std::size_t>(c)] += slope * at(other, row, c) / std::sqrt(static_cast<double>(D_));
    }
  }

  const Backward& of_;
  std::int64_t head_;
  bool causal_;
  std::int64_t T_, Tk_, D_;
};

std::string Backward::check() {
  solve();
  const bool causal = !options.mask.parts().empty();
  for (const std::int64_t head : {std::int64_t{0}, q.shape()[0] * q.shape()[1] - 1}) {
    const NaiveHead naive(*this, head, causal);
    const auto compare = [&](const char* name, const Tensor& got, std::int64_t row, const std::vector<double>& exact) {
      double largest = 1e-3, worst = 0;
      for (std::size_t c = 0; c < exact.size(); ++c) {
        largest = std::max(largest, std::abs(exact[c]));
        worst = std::max(worst, std::abs(exact[c] - naive.at(got, row, static_cast<std::int64_t>(c))));
      }
      // Sums of some thousand products of float32.
      const bool right = worst <= 3e-5 * largest;
      return right ? std::string() : message(name, " of head ", head, ", row ", row, " is off by ", worst);
    };
    // All rows for additive would take minutes; two are enough to see an error of the kernel's tiles.
    for (const std::int64_t row : {std::int64_t{1}, q.shape()[2] - 1}) {
      const std::int64_t key = std::min(row, k.shape()[2] - 1);
      for (const std::string& wrong : {compare("dq", dq, row, naive.dq(row)), compare("dk", dk, key, naive.dk(key)),
                                       compare("dv", dv, key, naive.dv(key))}) {
        if (!wrong.empty()) return wrong;
      }
    }
  }
  return {};
}

Case case_of(const char* name, const std::shared_ptr<Backward>& problem, std::int64_t pairs) {
  const Shape& q = problem->q.shape();
  const std::int64_t Tk = problem->k.shape()[2], D = q[3];
  problem->prepare();
  return {.name = name,
          .shape = {{"B", q[0]}, {"H", q[1]}, {"Hk", q[1]}, {"Tq", q[2]}, {"Tk", Tk}, {"D", D}, {"Dv", D}},
          .work = 10.0 * static_cast<double>(pairs) * static_cast<double>(D),  // five products
          .useful_pairs = pairs,
          .call = [problem] { problem->solve(); },
          .check = [problem] { return problem->check(); }};
}

std::shared_ptr<Backward> make(std::int64_t B, std::int64_t H, std::int64_t Tq, std::int64_t Tk, std::int64_t D,
                               int threads) {
  auto problem = std::make_shared<Backward>();
  problem->q = random_tensor({B, H, Tq, D}, 1, 3);
  problem->k = random_tensor({B, H, Tk, D}, 2);
  problem->v = random_tensor({B, H, Tk, D}, 3);
  problem->dout = random_tensor({B, H, Tq, D}, 4);
  problem->options.threads = threads;
  return problem;
}

Case dot_case(bool with_causal, std::int64_t T, std::int64_t D, int threads) {
  const std::int64_t H = heads_for(T);
  const auto problem = make(1, H, T, T, D, threads);
  if (with_causal) problem->options.mask = causal(top_left());
  return case_of(with_causal ? "causal" : "plain", problem, with_causal ? H * T * (T + 1) / 2 : H * T * T);
}

std::shared_ptr<Backward> additive_problem(std::int64_t B, std::int64_t Tq, std::int64_t Tk, std::int64_t E,
                                           int threads) {
  constexpr std::int64_t D = 64;
  auto problem = make(B, 1, Tq, Tk, D, threads);
  const float size = 2.0f / std::sqrt(static_cast<float>(D));
  problem->Wq = random_tensor({E, D}, 5, size);
  problem->Wk = random_tensor({E, D}, 6, size);
  problem->w = random_tensor({E}, 7, 2.0f / std::sqrt(static_cast<float>(E)));
  problem->options.score = additive(problem->Wq, problem->Wk, problem->w);
  return problem;
}

Case additive_case(std::int64_t B, std::int64_t Tq, std::int64_t Tk, std::int64_t E, int threads) {
  constexpr std::int64_t D = 64;
  const auto problem = additive_problem(B, Tq, Tk, E, threads);
  Case made = case_of("additive", problem, B * Tq * Tk);
  made.shape.emplace_back("E", E);
  made.units = made.useful_pairs * E;
  // A unit again, its derivative, and four sums; then two products with values.
  made.work = 14.0 * static_cast<double>(made.units) + 4.0 * static_cast<double>(made.useful_pairs * D);
  return made;
}

// The same data on the tape.
struct Training {
  std::shared_ptr<Backward> data;
  AttendVariables x;
  AttendOptions options;

  explicit Training(const std::shared_ptr<Backward>& from) : data(from), options(from->options) {
    options.want_backward = false;
    const auto variable = [](const Tensor& tensor) { return tensor ? parameter(tensor.clone()) : Variable(); };
    x = {.q = variable(from->q),
         .k = variable(from->k),
         .v = variable(from->v),
         .query_weights = variable(from->Wq),
         .key_weights = variable(from->Wk),
         .hidden_weights = variable(from->w)};
  }
  void solve() const {
    for (const Variable& variable : {x.q, x.k, x.v, x.query_weights, x.key_weights, x.hidden_weights}) {
      if (variable) variable.zero_grad();
    }
    backward(attend(x, options).out, data->dout);
  }
  std::string check() const {
    const std::string wrong = data->check();
    if (!wrong.empty()) return wrong;
    solve();
    const auto same = [](const View& a, const Tensor& b) {
      return std::equal(b.values<float>().begin(), b.values<float>().end(), a.as<float>());
    };
    const bool right = same(x.q.grad(), data->dq) && same(x.k.grad(), data->dk) && same(x.v.grad(), data->dv);
    return right ? "" : "the tape's gradients are not those of attend_backward";
  }
};

}  // namespace

Case training_case(std::string_view name, std::int64_t H, std::int64_t T, std::int64_t D, int threads) {
  const bool is_additive = name == "additive" || name == "additive_forward";
  if (!is_additive && name != "plain" && name != "causal") {
    throw OptionError(message("bench: training has no case \"", name, "\""));
  }
  const auto data = is_additive ? additive_problem(H, T, 4 * T, D, threads) : make(1, H, T, T, D, threads);
  if (name == "causal") data->options.mask = causal(top_left());
  Case made = case_of(std::string(name).c_str(), data, 0);
  if (name == "additive_forward") {
    const auto out = std::make_shared<Tensor>(data->q.shape());
    made.call = [data, out] {
      AttendOptions options = data->options;
      options.want_backward = false;
      attend_into(data->q, data->k, data->v, {.out = *out}, options);
    };
    return made;
  }
  const auto training = std::make_shared<Training>(data);
  made.call = [training] { training->solve(); };
  made.check = [training] { return training->check(); };
  return made;
}

Bench backward_bench(const Options& options) {
  Bench bench{.name = "backward", .limit = Limit::operations, .groups = {}};
  for (const std::int64_t D : widths) {
    for (const std::int64_t T : lengths) {
      if (options.T.value_or(T) != T || options.D.value_or(D) != D) continue;
      if (options.quick && !options.T && T < 512) continue;
      std::vector<CaseMaker> makers = {{"plain", [=, &options] { return dot_case(false, T, D, options.threads); }},
                                       {"causal", [=, &options] { return dot_case(true, T, D, options.threads); }}};
      add_group(bench, options, makers);
    }
  }
  std::vector<CaseMaker> makers;
  for (const std::int64_t E : hidden_widths) {
    if (!options.T && options.D.value_or(64) == 64) {
      makers.push_back({"additive", [=, &options] { return additive_case(1, 512, 512, E, options.threads); }});
      makers.push_back({"additive", [=, &options] { return additive_case(4, 64, 256, E, options.threads); }});
    }
  }
  add_group(bench, options, makers);
  add_training_cases(bench, options);
  return bench;
}

}  // namespace qkv::bench
