// nn/reproducible_test.cpp: whole layers give the same bits for any number of threads and for a sequence alone.
#include <cstring>
#include <functional>

#include <gtest/gtest.h>

#include <qkv/threads.h>

#include "nn/layers.h"
#include "support/close.h"

namespace qkv::test {
namespace {

constexpr std::int64_t sequences = 5, steps = 37, width = 48;

// A layer that turns [B, T, width] with lengths [B] into something of B and T.
struct LayerRow {
  const char* name;
  std::function<Variable(const Variable& x, const View& lens, const View& ids)> call;
  nn::Parameters parameters;
};

nn::MultiHeadOptions heads(const Score& score, std::int64_t key_heads = 0) {
  return {.query_width = width, .heads = 4, .key_heads = key_heads, .dropout = 0.1, .score = score};
}

std::vector<LayerRow> rows(Dtype dtype) {
  nn::Init init(9, dtype);
  std::vector<LayerRow> all;
  const nn::Linear linear(width, 70, init);
  all.push_back(
      {"Linear", [=](const Variable& x, const View&, const View&) { return linear(x); }, linear.parameters()});
  const nn::LayerNorm norm(width, init);
  all.push_back({"LayerNorm", [=](const Variable& x, const View&, const View&) { return norm(x); }, norm.parameters()});
  const nn::Gru gru(width, 40, init, {.layers = 2, .both_directions = true});
  all.push_back(
      {"Gru", [=](const Variable& x, const View& lens, const View&) { return gru(x, nn::eval, {.lengths = lens}).all; },
       gru.parameters()});
  const nn::AdditiveAttention additive_layer(width, width, 20, init, {.dropout = 0.1});
  all.push_back({"AdditiveAttention",
                 [=](const Variable& x, const View& lens, const View& ids) {
                   return additive_layer(x, x, x, nn::train(3), {.mask = lengths(lens), .sequence_ids = ids});
                 },
                 additive_layer.parameters()});
  const nn::DotProductAttention dots(init, {.dropout = 0.1});
  all.push_back({"DotProductAttention",
                 [=](const Variable& x, const View& lens, const View& ids) {
                   return dots(x, x, x, nn::train(3), {.mask = lengths(lens), .sequence_ids = ids});
                 },
                 {}});
  for (const nn::MultiHeadOptions& options : {heads(scaled_dot()), heads(scaled_dot(), 2), heads(additive({}, {}, {})),
                                              heads(bilinear({})), heads(gaussian(2)), heads(laplace(2), 2)}) {
    const nn::MultiHeadAttention layer(options, init);
    all.push_back({"MultiHeadAttention",
                   [=](const Variable& x, const View& lens, const View& ids) {
                     const AttendOptions with{.mask = causal() & lengths(lens), .sequence_ids = ids};
                     return layer(x, nn::train(3), with) + layer(x, layer.prepare(x, x, lens), nn::train(4), with);
                   },
                   layer.parameters()});
  }
  return all;
}

struct Results {
  Tensor y, dx;
  std::vector<Tensor> gradients;
};

Results run(const LayerRow& row, const View& x, const View& lens, const View& ids) {
  const Variable input = parameter(Tensor::copy_of(x));
  const Variable y = row.call(input, lens, ids);
  // The same gradient for a sequence wherever it stands.
  Tensor up(y.shape(), y.dtype());
  for (std::int64_t b = 0; b < y.extent(0); ++b) {
    const Shape one{1, y.extent(1), y.extent(2)};
    const Tensor numbers = random_tensor(one, static_cast<std::uint64_t>(ids.as<std::int64_t>()[b]) + 50, y.dtype());
    const auto bytes = static_cast<std::size_t>(numbers.elements()) * size_of(y.dtype());
    std::memcpy(static_cast<char*>(up.view().data()) + static_cast<std::size_t>(b) * bytes, numbers.view().data(),
                bytes);
  }
  backward(y, up);
  Results result{Tensor::copy_of(y.value()), Tensor::copy_of(input.grad()), {}};
  for (const NamedParameter& named : row.parameters) {
    result.gradients.push_back(Tensor::copy_of(named.parameter.grad()));
    named.parameter.zero_grad();
  }
  return result;
}

class Reproducible : public testing::TestWithParam<Dtype> {
 protected:
  const Tensor x_ = random_tensor({sequences, steps, width}, 1, GetParam());
  const Tensor lens_ = Tensor::of<std::int64_t>({steps, 3, 20, 1, 30}, {sequences});
  const Tensor ids_ = Tensor::of<std::int64_t>({0, 1, 2, 3, 4}, {sequences});
};
INSTANTIATE_TEST_SUITE_P(Dtypes, Reproducible, testing::Values(Dtype::float32, Dtype::float64),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST_P(Reproducible, LayersGiveTheSameBitsForAnyNumberOfThreads) {
  const int before = thread_count();
  for (const LayerRow& row : rows(GetParam())) {
    set_thread_count(1);
    const Results one = run(row, x_, lens_, ids_);
    for (const int threads : {2, 3, 8}) {
      set_thread_count(threads);
      const Results many = run(row, x_, lens_, ids_);
      EXPECT_TRUE(same_bits(many.y, one.y)) << row.name;
      EXPECT_TRUE(same_bits(many.dx, one.dx)) << row.name;
      for (std::size_t i = 0; i < one.gradients.size(); ++i) {
        EXPECT_TRUE(same_bits(many.gradients[i], one.gradients[i])) << row.name << row.parameters[i].name;
      }
    }
  }
  set_thread_count(before);
}

TEST_P(Reproducible, LayersGiveTheSameBitsForASequenceAloneAndInABatch) {
  for (const LayerRow& row : rows(GetParam())) {
    const Results all = run(row, x_, lens_, ids_);
    for (std::int64_t b = 0; b < sequences; ++b) {
      const auto of = [&](const Tensor& batch) { return batch.view().slice(0, b, 1); };
      const Results alone = run(row, of(x_), of(lens_), of(ids_));
      EXPECT_TRUE(same_bits(alone.y, of(all.y))) << row.name << ", sequence " << b;
      EXPECT_TRUE(same_bits(alone.dx, of(all.dx))) << row.name << ", sequence " << b;
    }
  }
}

TEST_P(Reproducible, LayersTakeAnEmptyBatch) {
  for (const LayerRow& row : rows(GetParam())) {
    const auto none = [](const Tensor& batch) { return batch.view().slice(0, 0, 0); };
    const Variable y = row.call(parameter(Tensor::copy_of(none(x_))), none(lens_), none(ids_));
    EXPECT_EQ(y.extent(0), 0) << row.name;
    EXPECT_EQ(y.extent(1), steps) << row.name;
    backward(y, Tensor(y.shape(), y.dtype()));
    for (const NamedParameter& named : row.parameters) {
      if (const View gradient = named.parameter.grad()) {
        EXPECT_EQ(largest_magnitude(gradient), 0) << named.name;
      }
      named.parameter.zero_grad();
    }
  }
}

}  // namespace
}  // namespace qkv::test
