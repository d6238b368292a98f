// bench/decode.cpp: attention of one query for each head to many keys: how near it comes to reading memory.
#include "bench/decode.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <qkv/attend.h>
#include <qkv/error.h>

#include "base/message.h"
#include "bench/check.h"
#include "bench/data.h"

namespace qkv::bench {
namespace {

constexpr std::array case_names = {"float32", "float16", "grouped", "separate"};
constexpr std::int64_t group_size = 4;
constexpr std::array<std::int64_t, 2> widths = {64, 128};
constexpr std::array<std::int64_t, 2> key_counts = {16384, 65536};

// Keys and values of all cases are windows on the same memory, so that a run needs only the largest of them (512 MB).
// The least that a case reads is 128 MB: several times the caches, so that little of it is there from the call before.
constexpr std::int64_t least_elements = std::int64_t{32} << 20;  // of keys and values together

// Query heads of a case: float32 reads 256 MB, float16 and grouped 128 MB, separate 512 MB.
std::int64_t heads_of(std::string_view name, std::int64_t T, std::int64_t D) {
  const std::int64_t heads = least_elements / (2 * T * D);
  return name == "float32" || name == "float16" ? 2 * heads : group_size * heads;
}

struct Extent {
  std::int64_t H, Hk, T, D;
  std::int64_t cache_elements() const { return 2 * Hk * T * D; }
};

Extent extent_of(std::string_view name, std::int64_t H, std::int64_t T, std::int64_t D) {
  if (std::find(case_names.begin(), case_names.end(), name) == case_names.end()) {
    throw OptionError(message("bench: decode has no case \"", name, "\""));
  }
  return {H, name == "grouped" ? H / group_size : H, T, D};
}

// Keys, and behind them values.
using Cache = std::shared_ptr<const Tensor>;

Cache make_cache(std::int64_t elements, Dtype dtype) {
  Tensor numbers({elements});
  fill(numbers.values<float>(), 2);
  if (dtype != Dtype::float32) numbers = Tensor::copy_of(numbers, dtype);
  return std::make_shared<const Tensor>(std::move(numbers));
}

std::span<const std::byte> bytes_of(const Cache& cache, std::int64_t elements) {
  const View view = *cache;
  return {view.as<std::byte>(), static_cast<std::size_t>(elements) * size_of(view.dtype())};
}

struct Problem {
  Cache cache;  // owns what k and v look at
  View k, v;
  Tensor q, out;
  AttendOptions options;

  void solve() { attend_into(q, k, v, {.out = out}, options); }
  // The first head and the last: the reference would need gigabytes for all at once.
  std::string check() {
    solve();
    const std::int64_t H = q.shape()[1], Hk = k.extent(1);
    for (const std::int64_t h : {std::int64_t{0}, H - 1}) {
      const std::int64_t key_head = h / (H / Hk);
      std::string wrong = check_attend(q.view().slice(1, h, 1), k.slice(1, key_head, 1), v.slice(1, key_head, 1),
                                       options, out.view().slice(1, h, 1));
      if (!wrong.empty()) return message("head ", h, ": ", wrong);
    }
    return {};
  }
};

Case make_case(std::string_view name, const Extent& extent, Cache cache, int threads) {
  const auto [H, Hk, T, D] = extent;
  auto problem = std::make_shared<Problem>();
  const View memory = *cache;
  const std::span<const std::byte> bytes = bytes_of(cache, extent.cache_elements());
  problem->k = View(bytes.data(), memory.dtype(), {1, Hk, T, D});
  problem->v = View(bytes.data() + bytes.size() / 2, memory.dtype(), {1, Hk, T, D});
  problem->cache = std::move(cache);
  problem->q = Tensor({1, H, 1, D});
  fill(problem->q.values<float>(), 1, 3);  // scores with a standard deviation of 1
  problem->out = Tensor({1, H, 1, D});
  problem->options.threads = threads;
  return {.name = std::string(name),
          .shape = {{"B", 1}, {"H", H}, {"Hk", Hk}, {"Tq", 1}, {"Tk", T}, {"D", D}, {"Dv", D}},
          .work = static_cast<double>(bytes.size()),
          .call = [problem] { problem->solve(); },
          .check = [problem] { return problem->check(); }};
}

Dtype dtype_of_case(std::string_view name) { return name == "float16" ? Dtype::float16 : Dtype::float32; }

}  // namespace

Case decode_case(std::string_view name, std::int64_t H, std::int64_t T, std::int64_t D, int threads) {
  const Extent extent = extent_of(name, H, T, D);
  return make_case(name, extent, make_cache(extent.cache_elements(), dtype_of_case(name)), threads);
}

Bench decode_bench(const Options& options) {
  Bench bench{.name = "decode", .limit = Limit::bandwidth, .groups = {}};
  // One memory for every dtype, made when it is first needed, as large as the largest case.
  std::array<Cache, 2> caches;
  const auto cache_of = [&](std::string_view name) -> Cache& {
    Cache& cache = caches[name == "float16" ? 1 : 0];
    const std::int64_t most_heads = name == "float16" ? 2 : group_size;
    if (!cache) cache = make_cache(most_heads * least_elements, dtype_of_case(name));
    return cache;
  };
  for (const std::int64_t D : widths) {
    for (const std::int64_t T : key_counts) {
      if (options.T.value_or(T) != T || options.D.value_or(D) != D) continue;
      if (options.quick && !options.T && T != key_counts.front()) continue;
      Group group;
      for (const std::string_view name : case_names) {
        if (!options.only_case.empty() && options.only_case != name) continue;
        const Extent extent = extent_of(name, heads_of(name, T, D), T, D);
        group.cases.push_back(make_case(name, extent, cache_of(name), options.threads));
      }
      if (group.cases.empty()) continue;
      // The peak reads the pages that the float32 case reads.
      const std::int64_t read = extent_of("float32", heads_of("float32", T, D), T, D).cache_elements();
      group.peaks = read_peaks(bytes_of(cache_of("float32"), read), options.threads);
      bench.groups.push_back(std::move(group));
    }
  }
  return bench;
}

}  // namespace qkv::bench
