// bench/attend.cpp: attention of as many queries as keys: what each kind of mask costs, for short and long sequences.
#include "bench/attend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include <qkv/attend.h>
#include <qkv/error.h>

#include "base/message.h"
#include "bench/data.h"
#include "bench/group.h"
#include "bench/problem.h"

namespace qkv::bench {
namespace {

constexpr std::array case_names = {"plain", "causal", "lengths", "window", "alibi", "bias", "keep"};
constexpr std::array<std::int64_t, 8> common_lengths = {16, 32, 64, 128, 512, 1024, 2048, 4096};
constexpr std::array<std::int64_t, 2> common_widths = {64, 128};
// Widths beside the common ones, and the two that lie around the smallest of them: plain, at one length.
constexpr std::array<std::int64_t, 5> other_widths = {32, 40, 48, 80, 96};
constexpr std::int64_t other_widths_length = 1024;

// A mask that heads share has more of them to share it.
std::int64_t heads_of(std::string_view name, std::int64_t T) {
  if (name == "bias" || name == "keep") return 8;
  return heads_for(T);
}

// Sequences of a padded batch: one is full, the others shorter by an eighth, a quarter and a half, off any round size.
std::vector<std::int64_t> lengths_of(std::int64_t sequences, std::int64_t T) {
  std::vector<std::int64_t> lengths = {T, T * 7 / 8 - 3, T * 3 / 4 + 5, T / 2 + 1};
  lengths.resize(static_cast<std::size_t>(sequences));
  for (std::int64_t& length : lengths) length = std::clamp<std::int64_t>(length, 1, T);
  return lengths;
}

// How many keys all queries of a head see together, if each sees those at most `left` before and `right` after it.
std::int64_t pairs_in_window(std::int64_t T, std::int64_t left, std::int64_t right) {
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < T; ++i) pairs += std::min(T - 1, i + right) - std::max<std::int64_t>(0, i - left) + 1;
  return pairs;
}

}  // namespace

Case attend_case(std::string_view name, std::int64_t H, std::int64_t T, std::int64_t D, int threads) {
  auto problem = std::make_shared<Problem>();
  problem->options.threads = threads;
  Mask& mask = problem->options.mask;
  Tensor& mask_data = problem->others.emplace_back();  // what the mask looks at
  std::int64_t B = 1;
  std::int64_t pairs = H * T * T;
  if (name == "causal") {
    mask = causal();
    pairs = H * pairs_in_window(T, T, 0);
  } else if (name == "lengths") {
    B = std::min<std::int64_t>(4, H);
    H /= B;
    const std::vector<std::int64_t> lens = lengths_of(B, T);
    mask_data = Tensor::copy_of(View(lens, {B}));
    mask = lengths(mask_data);
    pairs = 0;
    for (const std::int64_t length : lens) pairs += H * T * length;
  } else if (name == "window") {
    mask = window(T / 4, T / 4);
    pairs = H * pairs_in_window(T, T / 4, T / 4);
  } else if (name == "alibi") {
    mask_data = Tensor({H});
    for (std::int64_t h = 0; h < H; ++h) {
      mask_data.values<float>()[static_cast<std::size_t>(h)] =
          std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(H));
    }
    mask = alibi(mask_data);
  } else if (name == "bias") {
    mask_data = random_tensor({T, T}, 4);
    mask = bias(mask_data);
  } else if (name == "keep") {
    mask_data = Tensor({T, T}, Dtype::boolean);
    fill(mask_data.values<bool>(), 4);
    mask = keep(mask_data);
  } else if (name != "plain") {
    throw OptionError(message("bench: attend has no case \"", name, "\""));
  }
  problem->q = random_tensor({B, H, T, D}, 1, 3);  // scores with a standard deviation of 1
  problem->k = random_tensor({B, H, T, D}, 2);
  problem->v = random_tensor({B, H, T, D}, 3);
  problem->out = Tensor({B, H, T, D});
  return {.name = std::string(name),
          .shape = {{"B", B}, {"H", H}, {"Hk", H}, {"Tq", T}, {"Tk", T}, {"D", D}, {"Dv", D}},
          .work = 4.0 * static_cast<double>(pairs) * static_cast<double>(D),  // a product with k, a product with v
          .useful_pairs = pairs,
          .call = [problem] { problem->solve(); },
          .check = [problem] { return problem->check(); }};
}

Bench attend_bench(const Options& options) {
  Bench bench{.name = "attend", .limit = Limit::operations, .groups = {}};
  const auto add_size = [&](std::int64_t T, std::int64_t D, const auto& names) {
    if (options.T.value_or(T) != T || options.D.value_or(D) != D) return;
    std::vector<CaseMaker> makers;
    for (const std::string_view name : names) {
      makers.push_back(
          {std::string(name), [=, &options] { return attend_case(name, heads_of(name, T), T, D, options.threads); }});
    }
    add_group(bench, options, makers);
  };
  for (const std::int64_t D : common_widths) {
    for (const std::int64_t T : common_lengths) add_size(T, D, case_names);
  }
  for (const std::int64_t D : other_widths) add_size(other_widths_length, D, std::array{"plain"});
  return bench;
}

}  // namespace qkv::bench
