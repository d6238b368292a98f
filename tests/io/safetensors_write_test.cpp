// tests/io/safetensors_write_test.cpp: tensors to safetensors files, whole or not at all, and back.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/error.h>
#include <qkv/io.h>

#include "io/bytes.h"
#include "io/safetensors_bytes.h"
#include "support/close.h"
#include "support/errors.h"

namespace qkv::test {
namespace {

class WriteSafetensors : public testing::Test {
 protected:
  void write(const std::vector<NamedView>& tensors, const std::map<std::string, std::string>& metadata = {}) {
    write_safetensors(path_, tensors, metadata);
  }

  const Folder folder_;
  const std::filesystem::path path_ = folder_ / "a.safetensors";
};

// Bytes 0, 1, 2, ... for elements; booleans are 0 and 1.
Tensor numbered(const Shape& shape, Dtype dtype) {
  Tensor tensor(shape, dtype);
  auto* bytes = static_cast<unsigned char*>(tensor.view().data());
  const auto count = static_cast<std::size_t>(tensor.elements()) * size_of(dtype);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(dtype == Dtype::boolean ? i % 2 : i);
  return tensor;
}

TEST_F(WriteSafetensors, TheBytesAreThoseOfTheFormatsOwnWriter) {
  const Tensor weight = Tensor::of<float>({1, 2}, {2, 1}), steps = Tensor::of<std::int64_t>({7}, {});
  write({{"b.weight", weight}, {"steps", steps}}, {{"format", "pt"}});
  const std::string text = R"({"__metadata__":{"format":"pt"},"steps":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                           R"("b.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]}})";
  const std::string padding((8 - text.size() % 8) % 8, ' ');
  EXPECT_EQ(content_of(path_), safetensors(text + padding, bytes_of<std::int64_t>({7}) + bytes_of<float>({1, 2})));
  write({});
  EXPECT_EQ(content_of(path_), safetensors("{}      "));
}

TEST_F(WriteSafetensors, EveryDtypeComesBackBitForBitAndAligned) {
  const Dtype dtypes[] = {Dtype::boolean,  Dtype::float32, Dtype::int32, Dtype::float16,
                          Dtype::bfloat16, Dtype::float64, Dtype::int64};
  std::vector<Tensor> tensors;
  std::vector<NamedView> named;
  for (const Shape& shape : {Shape({3, 5}), Shape({}), Shape({4, 0, 2}), Shape({1, 1, 1, 1, 1, 1, 1, 3})}) {
    for (const Dtype dtype : dtypes) tensors.push_back(numbered(shape, dtype));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) named.push_back({"tensor." + std::to_string(i), tensors[i]});
  write(named);
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (const NamedView& tensor : named) {
    EXPECT_TRUE(same_bits(file.view(tensor.name), tensor.value)) << tensor.name;
    EXPECT_TRUE(same_bits(file.read(tensor.name), tensor.value)) << tensor.name;
  }
}

TEST_F(WriteSafetensors, LargerAlignmentComesFirstAndThenTheName) {
  const Tensor wide({1}, Dtype::float64), narrow({1}, Dtype::float16), flag({3}, Dtype::boolean),
      number({1}, Dtype::int64);
  write({{"a", flag}, {"b", narrow}, {"d", wide}, {"c", wide}, {"e", number}, {"f", narrow}});
  std::string order;
  const SafetensorsFile file(path_);
  for (const StoredTensor& tensor : file.tensors()) order += tensor.name;
  EXPECT_EQ(order, "ecdbfa");
}

TEST_F(WriteSafetensors, AnyStridesAreWrittenDense) {
  const Tensor array = Tensor::of<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  const float one = 1;
  write({{"turned", array.view().swapped(0, 1)},
         {"part", array.view().slice(1, 1, 1)},
         {"spread", View(&one, {2, 2}, Strides{0, 0})}});
  const SafetensorsFile file(path_);
  EXPECT_TRUE(same_bits(file.view("turned"), Tensor::of<float>({0, 3, 1, 4, 2, 5}, {3, 2})));
  EXPECT_TRUE(same_bits(file.view("part"), Tensor::of<float>({1, 4}, {2, 1})));
  EXPECT_TRUE(same_bits(file.view("spread"), Tensor::of<float>({1, 1, 1, 1}, {2, 2})));
}

TEST_F(WriteSafetensors, AnyTextIsANameAndMetadata) {
  const std::string odd = std::string("\"\\/\b\f\n\r\t\x1b\x7f\0", 11) + "ä漢𝄞\u2028";
  const Tensor array({2});
  write({{odd, array}, {"", array}}, {{odd, odd}, {"", ""}});
  const SafetensorsFile file(path_);
  EXPECT_TRUE(file.contains(odd));
  EXPECT_TRUE(file.contains(""));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{odd, odd}, {"", ""}}));
  EXPECT_NE(content_of(path_).find(R"(\"\\/\b\f\n\r\t\u001b)"), std::string::npos);
}

TEST_F(WriteSafetensors, WhatTheFormatCannotHoldIsRefusedAndNothingIsWritten) {
  const Tensor array({2}), other({2}, Dtype::float64);
  expect_error<OptionError>(
      [&] {
        write({{"a", array}, {"b", array}, {"a", other}});
      },
      {"write_safetensors: the name 'a' comes twice"});
  expect_error<OptionError>([&] { write({{"__metadata__", array}}); }, {"write_safetensors", "'__metadata__'"});
  expect_error<OptionError>([&] { write({{"\xff", array}}); }, {"write_safetensors: the name '\\xff' is not UTF-8"});
  expect_error<OptionError>([&] { write({}, {{"\xff", ""}}); }, {"the metadata's key '\\xff' is not UTF-8"});
  expect_error<OptionError>(
      [&] {
        write({}, {{"k", "\xed\xa0\x80"}});
      },
      {"the metadata '\\xed\\xa0\\x80' is not UTF-8"});
  expect_error<ShapeError>([&] { write({{"a", View()}}); }, {"write_safetensors: there is no array called 'a'"});
  EXPECT_EQ(folder_.files(), 0);
}

TEST_F(WriteSafetensors, AHeaderThatNobodyWouldReadIsNotWritten) {
  std::string text;
  text.resize(100'000'000, 'x');
  expect_error<FileError>(
      [&] {
        write({}, {{"k", text}});
      },
      {"cannot write '", "a.safetensors': its header would have 1000000", "allows 100000000"});
  EXPECT_EQ(folder_.files(), 0);
}

TEST_F(WriteSafetensors, AFailureLeavesTheOldFileAndNothingElse) {
  put(path_, "old");
  expect_error<FileError>([&] { write_safetensors(folder_ / "none/a", std::vector<NamedView>()); },
                          {"none/a'", "No such file"});
  const Tensor array({2});
  EXPECT_THROW(write({{"a", array}, {"a", array}}), OptionError);
  EXPECT_EQ(content_of(path_), "old");
  EXPECT_EQ(folder_.files(), 1);
}

}  // namespace
}  // namespace qkv::test
