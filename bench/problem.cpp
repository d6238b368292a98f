// bench/problem.cpp: makes problems of as many queries as keys.
#include "bench/problem.h"

#include "bench/check.h"
#include "bench/data.h"

namespace qkv::bench {

std::string Problem::check() {
  solve();
  return check_attend(q, k, v, options, out);
}

Tensor random_tensor(const Shape& shape, std::uint64_t seed, float size) {
  Tensor tensor(shape);
  fill(tensor.values<float>(), seed, size);
  return tensor;
}

std::int64_t heads_for(std::int64_t T) { return T <= 512 ? 8 : T <= 2048 ? 2 : 1; }

std::shared_ptr<Problem> square_problem(std::int64_t H, std::int64_t T, std::int64_t D, int threads, float size) {
  auto problem = std::make_shared<Problem>();
  problem->options.threads = threads;
  problem->q = random_tensor({1, H, T, D}, 1, size);
  problem->k = random_tensor({1, H, T, D}, 2);
  problem->v = random_tensor({1, H, T, D}, 3);
  problem->out = Tensor({1, H, T, D});
  return problem;
}

Case square_case(const std::string& name, const std::shared_ptr<Problem>& problem) {
  const Shape& shape = problem->q.shape();
  const std::int64_t H = shape[1], T = shape[2], D = shape[3], pairs = H * T * T;
  return {.name = name,
          .shape = {{"B", 1}, {"H", H}, {"Hk", H}, {"Tq", T}, {"Tk", T}, {"D", D}, {"Dv", D}},
          .work = 4.0 * static_cast<double>(pairs) * static_cast<double>(D),
          .useful_pairs = pairs,
          .units = 0,
          .call = [problem] { problem->solve(); },
          .check = [problem] { return problem->check(); }};
}

}  // namespace qkv::bench
