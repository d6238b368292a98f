// ops/attend_heads_test.cpp: attention on heads that stand side by side is that on heads that were taken apart.
#include <gtest/gtest.h>

#include <qkv/attend_op.h>
#include <qkv/ops.h>

#include "support/close.h"
#include "support/errors.h"
#include "support/random.h"

namespace qkv::test {
namespace {

constexpr HeadLayout layout{.heads = 4, .key_heads = 2, .query_width = 5, .key_width = 5, .value_width = 3};
constexpr std::int64_t B = 2, Tq = 7, Tk = 21;
constexpr std::int64_t columns_q = 20, columns_k = 10, columns_v = 6;

Variable random_parameter(const Shape& shape, std::uint64_t seed) {
  return parameter(random_tensor(shape, seed, Dtype::float64));
}

Variable taken_apart(const Variable& x, std::int64_t heads) {
  return transpose(reshape(x, {x.extent(0), x.extent(1), heads, x.extent(2) / heads}), 1, 2);
}
Variable put_together(const Variable& x) {
  return reshape(transpose(x, 1, 2), {x.extent(0), x.extent(2), x.extent(1) * x.extent(3)});
}

struct Scored {
  const char* name;
  Score score;
  AttendVariables carried;  // by the score
};

std::vector<Scored> all_scores() {
  std::vector<Scored> all = {{"scaled_dot", scaled_dot(), {}}, {"cosine", cosine(), {}}, {"laplace", laplace(), {}}};
  AttendVariables x;
  x.matrix = random_parameter({4, 5, 5}, 31);
  all.push_back({"bilinear", bilinear({}), x});
  x = {};
  x.query_weights = random_parameter({6, 5}, 32);
  x.key_weights = random_parameter({6, 5}, 33);
  x.hidden_weights = random_parameter({4, 6}, 34);
  all.push_back({"additive", additive({}, {}, {}), x});
  x = {};
  x.bandwidths = parameter(Tensor::of<double>({1, 2, 3, 4}, {4, 1}));
  all.push_back({"gaussian", gaussian(), x});
  return all;
}

std::vector<Variable> carried_by(const AttendVariables& x) {
  std::vector<Variable> there;
  for (const Variable& one : {x.matrix, x.query_weights, x.key_weights, x.hidden_weights, x.bandwidths}) {
    if (one) there.push_back(one);
  }
  return there;
}

// The gradients of these parameters after backward from y, which are forgotten then.
std::vector<Tensor> gradients(const Variable& y, const std::vector<Variable>& parameters) {
  backward(y, random_tensor(y.shape(), 77, Dtype::float64), {.retain = true});
  std::vector<Tensor> all;
  for (const Variable& one : parameters) {
    all.push_back(Tensor::copy_of(one.grad()));
    one.zero_grad();
  }
  return all;
}

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& right, const char* name) {
  for (std::size_t i = 0; i < right.size(); ++i) EXPECT_TRUE(same_bits(got[i], right[i])) << name << ", gradient " << i;
}

class AttendHeads : public testing::Test {
 protected:
  const Variable q_ = random_parameter({B, Tq, columns_q}, 1), k_ = random_parameter({B, Tk, columns_k}, 2);
  const Variable v_ = random_parameter({B, Tk, columns_v}, 3);
  const Tensor lens_ = Tensor::of<std::int64_t>({Tk, 4}, {B});
  const AttendOptions options_{.mask = lengths(lens_), .dropout = 0.2, .training = true, .seed = 4};
};

TEST_F(AttendHeads, IsAttendOnHeadsThatWereTakenApart) {
  for (const Scored& scored : all_scores()) {
    AttendOptions options = options_;
    options.score = scored.score;
    std::vector<Variable> parameters = carried_by(scored.carried);
    parameters.insert(parameters.end(), {q_, k_, v_});
    AttendVariables apart = scored.carried, together = scored.carried;
    apart.q = taken_apart(q_, 4);
    apart.k = taken_apart(k_, 2);
    apart.v = taken_apart(v_, 2);
    const Variable right = put_together(attend(apart, options).out);
    together.q = q_;
    together.k = k_;
    together.v = v_;
    const Variable y = attend_heads(together, layout, options).out;
    EXPECT_TRUE(same_bits(y.value(), right.value())) << scored.name;
    expect_same(gradients(y, parameters), gradients(right, parameters), scored.name);

    // Prepared, and asked twice.
    AttendVariables keys_apart = apart, keys_together = together, ask_apart, ask_together;
    keys_apart.q = keys_together.q = {};
    ask_apart.q = apart.q;
    ask_together.q = q_;
    const PreparedVariables prepared_apart = prepare(keys_apart, scored.score);
    const PreparedVariables prepared = prepare_heads(keys_together, layout, scored.score);
    AttendOptions other = options_;
    other.seed = 5;
    const Variable both_apart =
        put_together(attend(ask_apart, prepared_apart, options_).out + attend(ask_apart, prepared_apart, other).out);
    const Variable both = attend(ask_together, prepared, options_).out + attend(ask_together, prepared, other).out;
    EXPECT_TRUE(same_bits(both.value(), both_apart.value())) << scored.name;
    expect_same(gradients(both, parameters), gradients(both_apart, parameters), scored.name);
  }
}

TEST_F(AttendHeads, TakesKeysAndValuesOfOneVariableAndAllThreeOfOne) {
  const Variable kv = random_parameter({B, Tk, columns_k + columns_v}, 5);
  const Variable all = random_parameter({B, Tk, columns_q + columns_k + columns_v}, 6);
  for (const Scored& scored : all_scores()) {
    AttendOptions options = options_;
    options.score = scored.score;
    std::vector<Variable> parameters = carried_by(scored.carried);
    AttendVariables x = scored.carried, parts = scored.carried;

    parameters.insert(parameters.end(), {q_, kv});
    x.q = parts.q = q_;
    x.k = kv;
    parts.k = slice(kv, 2, 0, columns_k);
    parts.v = slice(kv, 2, columns_k, columns_v);
    const Variable two = attend_heads(x, layout, options).out, three = attend_heads(parts, layout, options).out;
    EXPECT_TRUE(same_bits(two.value(), three.value())) << scored.name;
    expect_same(gradients(two, parameters), gradients(three, parameters), scored.name);

    AttendVariables keys = x, parted_keys = parts, ask;
    keys.q = parted_keys.q = {};
    ask.q = q_;
    const Variable asked = attend(ask, prepare_heads(keys, layout, scored.score), options_).out;
    const Variable parted = attend(ask, prepare_heads(parted_keys, layout, scored.score), options_).out;
    EXPECT_TRUE(same_bits(asked.value(), parted.value())) << scored.name;
    expect_same(gradients(asked, parameters), gradients(parted, parameters), scored.name);

    parameters.resize(parameters.size() - 2);
    parameters.push_back(all);
    x.q = all;
    x.k = {};
    parts.q = slice(all, 2, 0, columns_q);
    parts.k = slice(all, 2, columns_q, columns_k);
    parts.v = slice(all, 2, columns_q + columns_k, columns_v);
    const Variable one = attend_heads(x, layout, options).out, from_parts = attend_heads(parts, layout, options).out;
    EXPECT_TRUE(same_bits(one.value(), from_parts.value())) << scored.name;
    expect_same(gradients(one, parameters), gradients(from_parts, parameters), scored.name);
  }
}

// Gradients are added to what another use of the variable has left.
TEST_F(AttendHeads, AddsToGradientsThatAreThere) {
  const Variable all = random_parameter({B, Tk, columns_q + columns_k + columns_v}, 6);
  const std::vector<Tensor> once = gradients(attend_heads({.q = all, .k = {}, .v = {}}, layout, options_).out, {all});
  const Variable again = attend_heads({.q = all, .k = {}, .v = {}}, layout, options_).out;
  const std::vector<Tensor> with_sum = gradients(again + 0 * sum(all), {all});
  EXPECT_TRUE(same_bits(with_sum[0], once[0]));
}

// One variable in two places is two inputs that see one memory.
TEST_F(AttendHeads, TakesOneVariableTwice) {
  constexpr HeadLayout same{.heads = 2, .key_heads = 2, .query_width = 5, .key_width = 5, .value_width = 5};
  const std::vector<Tensor> twice = gradients(attend_heads({.q = k_, .k = k_, .v = k_}, same, options_).out, {k_});
  const Variable heads = taken_apart(k_, 2);
  const std::vector<Tensor> right = gradients(put_together(attend(heads, heads, heads, options_)), {k_});
  const auto a = twice[0].values<double>(), b = right[0].values<double>();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-13);
}

TEST_F(AttendHeads, GivesLogSumExpAndEntropyByHeads) {
  AttendOptions options = options_;
  options.want_lse = options.want_entropy = true;
  const AttendedVariables y = attend_heads({.q = q_, .k = k_, .v = v_}, layout, options);
  EXPECT_EQ(y.lse.shape(), (Shape{B, 4, Tq}));
  const std::vector<Variable> parameters = {q_, k_, v_};
  const auto total = [](const AttendedVariables& of) { return sum(of.lse) + sum(of.entropy) + sum(of.out); };
  backward(total(y));
  std::vector<Tensor> got;
  for (const Variable& one : parameters) {
    got.push_back(Tensor::copy_of(one.grad()));
    one.zero_grad();
  }
  backward(total(attend({.q = taken_apart(q_, 4), .k = taken_apart(k_, 2), .v = taken_apart(v_, 2)}, options)));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(got[i], parameters[i].grad()));
}

TEST_F(AttendHeads, TakesExtentsOfZero) {
  for (const Shape& shape : {Shape{0, Tk, 36}, Shape{B, 0, 36}}) {
    const Variable all = random_parameter(shape, 6);
    const Variable y = attend_heads({.q = all, .k = {}, .v = {}}, layout).out;
    EXPECT_EQ(y.shape(), (Shape{shape[0], shape[1], 12}));
    backward(y, Tensor(y.shape(), Dtype::float64));
  }
}

TEST_F(AttendHeads, SaysWhatIsWrong) {
  expect_error<ShapeError>([&] { attend_heads({.q = k_, .k = k_, .v = v_}, layout); },
                           {"attend_heads", "q must be [B, T, 20]", "[2, 21, 10]"});
  expect_error<ShapeError>([&] { attend_heads({.q = q_, .k = q_, .v = v_}, layout); }, {"k must be [B, T, 10]"});
  expect_error<ShapeError>([&] { attend_heads({.q = q_, .k = k_, .v = k_}, layout); }, {"v must be [B, T, 6]"});
  expect_error<ShapeError>([&] { attend_heads({.q = q_, .k = k_, .v = {}}, layout); }, {"k, with values,", "16]"});
  expect_error<ShapeError>([&] { attend_heads({.q = q_, .k = {}, .v = {}}, layout); }, {"q, with keys", "36]"});
  expect_error<ShapeError>([&] { attend_heads({.q = q_, .k = {}, .v = v_}, layout); }, {"v is given without k"});
  expect_error<ShapeError>([&] { attend_heads({.q = {}, .k = k_, .v = v_}, layout); }, {"attend_heads", "absent"});
  expect_error<ShapeError>([&] { attend_heads({.q = taken_apart(q_, 4), .k = k_, .v = v_}, layout); },
                           {"q must be [B, T, 20]", "[2, 4, 7, 5]"});
  expect_error<OptionError>([&] { attend_heads({.q = q_, .k = k_, .v = v_}, {.heads = 0}); }, {"at least one head"});
  expect_error<ShapeError>([&] { prepare_heads({.q = {}, .k = k_, .v = k_}, layout); }, {"prepare_heads", "v must be"});
  expect_error<OptionError>([&] { prepare_heads({.q = q_, .k = k_, .v = v_}, layout); }, {"prepare", "each ask"});
}

}  // namespace
}  // namespace qkv::test
