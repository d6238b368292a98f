// nn/state_dict_test.cpp: parameters to files and back, and files that do not fit.
#include <gtest/gtest.h>

#include <qkv/nn.h>

#include "io/bytes.h"
#include "nn/layers.h"
#include "reference/elements.h"
#include "support/close.h"
#include "support/errors.h"

namespace qkv::test {
namespace {

class StateDict : public testing::Test {
 protected:
  // Parameters keep their bits whatever is refused.
  void expect_refused(const std::vector<NamedView>& tensors, std::initializer_list<std::string> parts,
                      const std::string& prefix = "") {
    write_safetensors(path_, tensors);
    const Tensor weight = Tensor::copy_of(layer_.weight.value()), bias = Tensor::copy_of(layer_.bias.value());
    expect_error<FileError>([&] { nn::load(layer_.parameters(), SafetensorsFile(path_), prefix); }, parts);
    EXPECT_TRUE(same_bits(layer_.weight.value(), weight));
    EXPECT_TRUE(same_bits(layer_.bias.value(), bias));
  }

  const Folder folder_;
  const std::filesystem::path path_ = folder_ / "a.safetensors";
  nn::Init init_{4};
  const nn::Linear layer_{3, 2, init_};
  const Tensor weight_ = random_tensor({2, 3}, 1), bias_ = random_tensor({2}, 2);
};

TEST_F(StateDict, IsWrittenAndReadAgain) {
  const nn::MultiHeadAttention layer({.query_width = 8, .heads = 2, .score = additive({}, {}, {})}, init_);
  const nn::MultiHeadAttention other({.query_width = 8, .heads = 2, .score = additive({}, {}, {})}, init_);
  nn::save(path_, layer.parameters("heads."), {{"step", "7"}});
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.metadata().at("step"), "7");
  nn::load(other.parameters(), file, "heads.");
  const nn::Parameters a = layer.parameters(), b = other.parameters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same_bits(a[i].parameter.value(), b[i].parameter.value())) << a[i].name;
  }
}

TEST_F(StateDict, OfAnotherFloatingDtypeIsConverted) {
  for (const Dtype stored : {Dtype::float16, Dtype::bfloat16, Dtype::float64}) {
    const Tensor weight = Tensor::copy_of(weight_, stored), bias = Tensor::copy_of(bias_, stored);
    write_safetensors(path_, std::vector<NamedView>{{"weight", weight}, {"bias", bias}});
    nn::load(layer_.parameters(), SafetensorsFile(path_));
    EXPECT_TRUE(same_bits(layer_.weight.value(), Tensor::copy_of(weight, Dtype::float32)));
    EXPECT_TRUE(same_bits(layer_.bias.value(), Tensor::copy_of(bias, Dtype::float32)));
  }
  nn::Init wide(1, Dtype::float64);
  const nn::Linear layer(3, 2, wide);
  write_safetensors(path_, std::vector<NamedView>{{"weight", weight_}, {"bias", bias_}});
  nn::load(layer.parameters(), SafetensorsFile(path_));
  EXPECT_TRUE(same_bits(layer.weight.value(), Tensor::copy_of(weight_, Dtype::float64)));
}

TEST_F(StateDict, WithANumberThatIsTooLargeForTheParametersChangesNothing) {
  Tensor weight = Tensor::copy_of(weight_, Dtype::float64);
  weight.values<double>()[4] = 1e39;
  write_safetensors(path_, std::vector<NamedView>{{"weight", weight}, {"bias", bias_}});
  const Tensor before = Tensor::copy_of(layer_.weight.value());
  expect_error<DtypeError>([&] { nn::load(layer_.parameters(), SafetensorsFile(path_)); },
                           {"a.safetensors", "'weight'", "1e+39 does not fit in float32"});
  EXPECT_TRUE(same_bits(layer_.weight.value(), before));
}

TEST_F(StateDict, MayHaveOthersOutsideOfThePrefix) {
  write_safetensors(path_, std::vector<NamedView>{{"a.weight", weight_}, {"a.bias", bias_}, {"b.weight", bias_}});
  nn::load(layer_.parameters(), SafetensorsFile(path_), "a.");
  EXPECT_TRUE(same_bits(layer_.weight.value(), weight_));
  expect_refused({{"a.weight", weight_}, {"a.bias", bias_}, {"b.weight", bias_}}, {"'b.weight' is extra"});
}

TEST_F(StateDict, ThatDoesNotFitNamesWhatIsWrongAndChangesNothing) {
  expect_refused({{"weight", weight_}}, {"a.safetensors", "'bias' is missing"});
  expect_refused({{"weight", weight_}, {"bias", bias_}, {"gain", bias_}}, {"'gain' is extra"});
  expect_refused({{"weight", bias_}, {"bias", bias_}}, {"'weight' is [2] and should be [2, 3]"});
  const Tensor integers = random_integers({2}, 1, 0, 5);
  expect_refused({{"weight", weight_}, {"bias", integers}}, {"'bias' is I64 and not floating"});
  expect_refused({{"m.weight", bias_}, {"m.more", bias_}},
                 {"'m.weight' is [2]", "'m.bias' is missing", "'m.more' is extra"}, "m.");
}

TEST_F(StateDict, OfManyFaultsSaysTheFirstAndHowManyThereAre) {
  std::vector<NamedView> tensors;
  for (int i = 10; i < 40; ++i) tensors.push_back({"extra" + std::to_string(i), bias_});
  expect_refused(tensors, {"'weight' is missing", "'extra10' is extra", "and 16 more"});
}

TEST_F(StateDict, RefusesListsThatAreNone) {
  write_safetensors(path_, std::vector<NamedView>{{"weight", weight_}, {"bias", bias_}});
  const SafetensorsFile file(path_);
  expect_error<OptionError>(
      [&] {
        nn::load({{"weight", layer_.weight}, {"weight", layer_.weight}}, file);
      },
      {"load", "'weight'", "twice"});
  EXPECT_THROW(nn::load({{"weight", Variable(weight_.clone())}}, file), OptionError);
  EXPECT_THROW(nn::save(path_, {{"a", layer_.bias}, {"a", layer_.bias}}), OptionError);
}

TEST_F(StateDict, OfPyTorchIsReadInFullAndInHalfPrecision) {
  const nn::Linear decide(8, 3, init_), half(8, 3, init_);
  const nn::Gru read(8, 4, init_, {.both_directions = true});
  nn::load(decide.parameters(), SafetensorsFile("tests/nn/golden/tagger_state.safetensors"), "decide.");
  nn::load(half.parameters(), SafetensorsFile("tests/nn/golden/tagger_state_bfloat16.safetensors"), "decide.");
  nn::load(read.parameters(), SafetensorsFile("tests/nn/golden/tagger_state.safetensors"), "read.");
  const std::vector<double> a = reference::elements<double>(decide.weight.value());
  const std::vector<double> b = reference::elements<double>(half.weight.value());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 0x1p-8 * std::abs(a[i]));
}

}  // namespace
}  // namespace qkv::test
