// bench/layers.cpp: multi-head self-attention, forward and in training.
#include "bench/layers.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <qkv/error.h>
#include <qkv/nn.h>

#include "base/message.h"
#include "bench/group.h"
#include "bench/tape.h"
#include "reference/attend.h"
#include "reference/gemm.h"

namespace qkv::bench {
namespace {

struct Size {
  std::int64_t B, T, width, heads;
};
constexpr Size sizes[] = {{16, 128, 512, 8}, {64, 16, 512, 8}, {8, 512, 512, 8}, {32, 128, 384, 12}};

constexpr Size additive_size = {4, 128, 256, 4};

nn::MultiHeadAttention layer_of(const Size& size, bool is_additive, Dtype dtype) {
  nn::Init init(1, dtype);
  nn::MultiHeadOptions options{.query_width = size.width, .heads = size.heads};
  if (is_additive) options.score = additive({}, {}, {});
  options.shared_score = is_additive;
  return nn::MultiHeadAttention(options, init);
}

void forget(const nn::MultiHeadAttention& layer, const Variable& x) {
  x.zero_grad();
  for (const NamedParameter& parameter : layer.parameters()) parameter.parameter.zero_grad();
}

struct Heads {
  Heads(const Size& of, bool additive_heads, int with_threads)
      : size(of),
        is_additive(additive_heads),
        threads(with_threads),
        layer(layer_of(of, additive_heads, Dtype::float32)),
        x(parameter(filled({of.B, of.T, of.width}, 1, 1))),
        upstream(filled({of.B, of.T, of.width}, 2, 1)) {}

  Variable forward() const {
    const WithThreads with(threads);
    const NoGrad no_grad;
    return layer(x, nn::eval);
  }
  void train() const {
    const WithThreads with(threads);
    forget(layer, x);
    backward(layer(x, nn::eval), upstream);
  }

  // The last sequence, by its formula in naive loops.
  std::string check_forward() const {
    const std::int64_t B = size.B, T = size.T, width = size.width, heads = size.heads;
    const std::int64_t d = width / heads;
    const Tensor last = Tensor::copy_of(x.value().slice(0, B - 1, 1)).reshaped({T, width});
    const auto projected = [&](const View& rows, const View& W, const View& bias) {
      std::vector<double> y = reference::gemm<double>(rows, W.swapped(0, 1));
      for (std::size_t i = 0; i < y.size(); ++i) {
        y[i] += static_cast<double>(bias.as<float>()[i % static_cast<std::size_t>(width)]);
      }
      return y;
    };
    const auto part = [&](std::int64_t i) {
      return projected(last, layer.in_proj_weight.value().slice(0, i * width, width),
                       layer.in_proj_bias.value().slice(0, i * width, width));
    };
    const std::vector<double> q = part(0), k = part(1), v = part(2);
    const auto by_heads = [&](const std::vector<double>& rows) {
      return View(rows.data(), Dtype::float64, {1, heads, T, d}, {0, d, width, 1});
    };
    const auto answer = reference::attend<double>(by_heads(q), by_heads(k), by_heads(v), {});
    std::vector<double> side_by_side(static_cast<std::size_t>(T * width));
    for (std::int64_t i = 0; i < heads * T * d; ++i) {
      const std::int64_t h = i / (T * d), t = i / d % T, c = i % d;
      side_by_side[static_cast<std::size_t>(t * width + h * d + c)] = answer.out[static_cast<std::size_t>(i)];
    }
    const std::vector<double> right =
        projected(View(side_by_side, {T, width}), layer.out_proj.weight.value(), layer.out_proj.bias.value());
    const Tensor got = Tensor::copy_of(forward().value().slice(0, B - 1, 1));
    return compare("y", got, right, static_cast<double>(4 * width));
  }

  // Against the same layer in float64, whose gradients the tests hold to differences.
  std::string check_train() const {
    const nn::MultiHeadAttention wide = layer_of(size, is_additive, Dtype::float64);
    const nn::Parameters narrow = layer.parameters(), wides = wide.parameters();
    for (std::size_t i = 0; i < wides.size(); ++i) {
      const Tensor copy = Tensor::copy_of(narrow[i].parameter.value(), Dtype::float64);
      std::copy_n(copy.values<double>().begin(), copy.elements(), wides[i].parameter.mutable_value().as<double>());
    }
    const Variable wide_x = parameter(Tensor::copy_of(x.value(), Dtype::float64));
    backward(wide(wide_x, nn::eval), Tensor::copy_of(upstream, Dtype::float64));
    train();
    const auto differs = [&](const char* name, const Variable& got, const Variable& right) {
      const auto* values = right.grad().as<double>();
      return compare(name, got.grad(), std::vector<double>(values, values + right.grad().elements()),
                     static_cast<double>(16 * size.B * size.T));
    };
    std::string wrong = differs("dx", x, wide_x);
    for (std::size_t i = 0; i < wides.size() && wrong.empty(); ++i) {
      wrong = differs(narrow[i].name.c_str(), narrow[i].parameter, wides[i].parameter);
    }
    return wrong;
  }

  Size size;
  bool is_additive;
  int threads;
  nn::MultiHeadAttention layer;
  Variable x;
  Tensor upstream;
};

Case case_of(const std::string& name, const Size& size, int threads) {
  const bool is_additive = name == "mha_additive", train = name != "mha_forward";
  const auto heads = std::make_shared<Heads>(size, is_additive, threads);
  const auto B = static_cast<double>(size.B), T = static_cast<double>(size.T), width = static_cast<double>(size.width);
  const double projections = 4 * 2 * B * T * width * width, pairs = B * T * T * width;
  return {.name = name,
          .shape = {{"B", size.B}, {"T", size.T}, {"width", size.width}, {"heads", size.heads}},
          .work = train ? 3 * projections + 14 * pairs : projections + 4 * pairs,  // as if heads scored by dot products
          .call =
              [heads, train] {
                if (train) return heads->train();
                heads->forward();
              },
          .check = [heads, train] { return train ? heads->check_train() : heads->check_forward(); }};
}

}  // namespace

Case layers_case(const std::string& name, std::int64_t B, std::int64_t T, std::int64_t width, std::int64_t heads,
                 int threads) {
  if (name != "mha_forward" && name != "mha_train" && name != "mha_additive")
    throw OptionError(message("bench: layers has no case \"", name, "\""));
  return case_of(name, {B, T, width, heads}, threads);
}

Bench layers_bench(const Options& options) {
  Bench bench{.name = "layers", .limit = Limit::operations, .groups = {}};
  for (const Size& size : sizes) {
    if ((options.T && *options.T != size.T) || options.D) continue;
    std::vector<CaseMaker> makers;
    for (const char* name : {"mha_forward", "mha_train"}) {
      makers.push_back({name, [=, &options] { return case_of(name, size, options.threads); }});
    }
    add_group(bench, options, makers);
  }
  if (!options.T && !options.D) {
    add_group(bench, options,
              {{"mha_additive", [&] { return case_of("mha_additive", additive_size, options.threads); }}});
  }
  return bench;
}

}  // namespace qkv::bench
