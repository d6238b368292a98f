// bench/cache.cpp: a cache that grows by a token, and a step of decoding from it.
#include "bench/cache.h"

#include <array>
#include <memory>
#include <span>
#include <string>

#include <qkv/attend.h>
#include <qkv/cache.h>

#include "bench/check.h"
#include "bench/problem.h"

namespace qkv::bench {
namespace {

constexpr std::array case_names = {"decode", "decode_float16", "append"};
constexpr std::int64_t tokens = 16384, heads = 8;
constexpr std::array<std::int64_t, 2> widths = {64, 128};

struct Problem {
  Cache cache;
  Tensor q, k, v, out;  // of one token

  Problem(std::int64_t D, const CacheOptions& options)
      : cache(1, heads, D, D, options),
        q(random_tensor({1, heads, 1, D}, 1, 3)),
        k(random_tensor({1, heads, 1, D}, 2)),
        v(random_tensor({1, heads, 1, D}, 3)),
        out({1, heads, 1, D}) {}
};

Case cache_case(const std::string& name, std::int64_t D, int threads) {
  // A window keeps the cache that is appended to at its length, and moving its tokens is part of the time.
  const CacheOptions options{.dtype = name == "decode_float16" ? Dtype::float16 : Dtype::float32,
                             .left = name == "append" ? tokens - 1 : -1,
                             .capacity = 2 * tokens};
  auto problem = std::make_shared<Problem>(D, options);
  problem->cache.append(random_tensor({1, heads, tokens, D}, 4), random_tensor({1, heads, tokens, D}, 5));
  const AttendOptions ask{.mask = causal(bottom_right()), .threads = threads};
  const std::int64_t held = name == "append" ? 1 : tokens;
  Case made{.name = name,
            .shape = {{"B", 1}, {"H", heads}, {"Hk", heads}, {"Tq", 1}, {"Tk", tokens}, {"D", D}, {"Dv", D}},
            .work = static_cast<double>(2 * heads * held * D) * static_cast<double>(size_of(options.dtype)),
            .useful_pairs = 0,
            .units = 0,
            .call = {},
            .check = {}};
  if (name == "append") {
    made.call = [problem] { problem->cache.append(problem->k, problem->v); };
    made.check = [problem] {
      const View before = problem->cache.lengths();
      const std::int64_t length = before.as<std::int64_t>()[0] + problem->cache.evicted().as<std::int64_t>()[0];
      problem->cache.append(problem->k, problem->v);
      const View after = problem->cache.lengths();
      const std::int64_t now = after.as<std::int64_t>()[0] + problem->cache.evicted().as<std::int64_t>()[0];
      return now == length + 1 ? std::string() : std::string("a token was appended, and the length is wrong");
    };
    return made;
  }
  made.call = [problem, ask] { attend_into(problem->q, problem->cache, {.out = problem->out}, ask); };
  made.check = [problem, ask, call = made.call] {
    call();
    return check_attend(problem->q, problem->cache.keys(), problem->cache.values(), ask, problem->out);
  };
  return made;
}

}  // namespace

Bench cache_bench(const Options& options) {
  Bench bench{.name = "cache", .limit = Limit::bandwidth, .groups = {}, .reference = {}};
  for (const std::int64_t D : widths) {
    if (options.T.value_or(tokens) != tokens || options.D.value_or(D) != D) continue;
    if (options.quick && !options.D && D != widths.front()) continue;
    Group group;
    bool any = false;
    for (const std::string_view name : case_names) {
      if (!options.only_case.empty() && options.only_case != name) continue;
      any = true;
      group.cases.push_back(cache_case(std::string(name), D, options.threads));
    }
    const auto memory = std::make_shared<Tensor>(random_tensor({2 * heads * tokens * D}, 6));
    const View all = *memory;
    group.peaks =
        read_peaks({all.as<std::byte>(), static_cast<std::size_t>(all.elements()) * sizeof(float)}, options.threads);
    for (Peak& peak : group.peaks) {
      peak.call = [call = peak.call, memory] { call(); };  // keeps it alive
    }
    if (any) bench.groups.push_back(std::move(group));
  }
  return bench;
}

}  // namespace qkv::bench
