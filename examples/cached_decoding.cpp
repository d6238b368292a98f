// examples/cached_decoding.cpp: tokens come one by one, and each asks those before it; the answers are those of one
// causal pass over all of them.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <qkv/cache.h>

int main() {
  // Four tokens of one sequence and one head: keys of width 2, which are their queries too, and values of width 1.
  const std::int64_t T = 4;
  const std::vector<float> features = {1, 0, 0, 1, 1, 1, 0, 2}, numbers = {10, 20, 30, 40};
  const qkv::View x(features, {1, T, 2}), v(numbers, {1, T, 1});

  qkv::Cache cache(1, 1, 2, 1, {.score = qkv::cosine()});  // keys become unit vectors when they come in
  std::vector<float> steps;
  for (std::int64_t t = 0; t < T; ++t) {
    cache.append(x.slice(1, t, 1), v.slice(1, t, 1));
    steps.push_back(qkv::attend(x.slice(1, t, 1), cache).out.values<float>()[0]);
  }

  const qkv::Attended at_once = qkv::attend(x, x, v, {.score = qkv::cosine(), .mask = qkv::causal()});
  for (std::size_t t = 0; t < steps.size(); ++t) {
    std::printf("token %zu gets %.3f, and %.3f at once\n", t + 1, static_cast<double>(steps[t]),
                static_cast<double>(at_once.out.values<float>()[t]));
  }
}

// Prints:
//   token 1 gets 10.000, and 10.000 at once
//   token 2 gets 17.311, and 17.311 at once
//   token 3 gets 21.019, and 21.019 at once
//   token 4 gets 27.637, and 27.637 at once
