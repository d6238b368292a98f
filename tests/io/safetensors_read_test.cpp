// tests/io/safetensors_read_test.cpp: safetensors files to views and tensors.
#include <sys/stat.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
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

class ReadSafetensors : public testing::Test {
 protected:
  SafetensorsFile opened(const std::string& content) {
    put(folder_ / "a.safetensors", content);
    return SafetensorsFile(folder_ / "a.safetensors");
  }
  // A file of one tensor called x, its elements on a multiple of 8 unless padded otherwise.
  SafetensorsFile with_one(const std::string& dtype, const std::string& shape, const std::string& elements,
                           std::size_t beyond_8 = 0) {
    std::string text = object({entry("x", dtype, shape, elements.size())});
    while (text.size() % 8 != beyond_8) text += ' ';
    return opened(safetensors(text, elements));
  }

  const Folder folder_;
};

std::vector<std::string> names_of(const SafetensorsFile& file) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : file.tensors()) names.push_back(tensor.name);
  return names;
}

TEST_F(ReadSafetensors, EveryDtypeThatQkvHasIsSeenWhereItLies) {
  EXPECT_TRUE(
      same_bits(with_one("F32", "[2]", bytes_of<float>({1.5f, -2})).view("x"), Tensor::of<float>({1.5f, -2}, {2})));
  EXPECT_TRUE(same_bits(with_one("F64", "[1]", bytes_of<double>({0.1})).view("x"), Tensor::of<double>({0.1}, {1})));
  EXPECT_TRUE(same_bits(with_one("F16", "[1]", bytes_of<std::uint16_t>({0x3e00})).view("x"),
                        Tensor::of<Float16>({Float16(1.5f)}, {1})));
  EXPECT_TRUE(same_bits(with_one("BF16", "[1]", bytes_of<std::uint16_t>({0x3fc0})).view("x"),
                        Tensor::of<BFloat16>({BFloat16(1.5f)}, {1})));
  EXPECT_TRUE(
      same_bits(with_one("I32", "[1]", bytes_of<std::int32_t>({-7})).view("x"), Tensor::of<std::int32_t>({-7}, {1})));
  EXPECT_TRUE(same_bits(with_one("I64", "[1]", bytes_of<std::int64_t>({1L << 40})).view("x"),
                        Tensor::of<std::int64_t>({1L << 40}, {1})));
  EXPECT_TRUE(same_bits(with_one("BOOL", "[3]", std::string("\1\0\1", 3)).view("x"),
                        Tensor::of<bool>({true, false, true}, {3})));
}

TEST_F(ReadSafetensors, EveryOtherDtypeIsListedAndRefusedByName) {
  const struct {
    const char* dtype;
    const char* shape;
    int bytes;
  } others[] = {{"U8", "[3]", 3},      {"I8", "[3]", 3},      {"F8_E5M2", "[3]", 3},     {"F8_E4M3", "[3]", 3},
                {"F8_E8M0", "[3]", 3}, {"I16", "[3]", 6},     {"F8_E4M3FNUZ", "[3]", 3}, {"F8_E5M2FNUZ", "[3]", 3},
                {"U16", "[3]", 6},     {"U32", "[3]", 12},    {"U64", "[3]", 24},        {"C64", "[3]", 24},
                {"F4", "[2, 3]", 3},   {"F6_E2M3", "[4]", 3}, {"F6_E3M2", "[2, 4]", 6}};
  for (const auto& other : others) {
    const SafetensorsFile file =
        with_one(other.dtype, other.shape, std::string(static_cast<std::size_t>(other.bytes), 'x'));
    EXPECT_EQ(file.tensor("x").format_dtype, other.dtype);
    EXPECT_FALSE(file.tensor("x").dtype);
    EXPECT_EQ(file.tensor("x").bytes, other.bytes);
    const std::string said = std::string("tensor 'x': its elements are ") + other.dtype + ";";
    expect_error<DtypeError>([&] { file.view("x"); }, {"cannot read '", "a.safetensors': ", said});
    expect_error<DtypeError>([&] { file.read("x"); }, {said});
    expect_error<DtypeError>([&] { file.read("x", Dtype::float32); }, {said});
  }
}

TEST_F(ReadSafetensors, TensorsAreListedInTheOrderOfTheirElementsWithAllThatIsSaidOfThem) {
  const SafetensorsFile file =
      opened(safetensors(object({entry("last", "F32", "[2,1]", "[10,18]"), entry("none", "I64", "[0,7]", "[2,2]"),
                                 entry("first", "BF16", "[]", "[0,2]"), entry("mid", "F64", "[1]", "[2,10]")}),
                         std::string(18, '\0')));
  EXPECT_EQ(names_of(file), (std::vector<std::string>{"first", "none", "mid", "last"}));
  const StoredTensor& last = file.tensor("last");
  EXPECT_EQ(last.format_dtype, "F32");
  EXPECT_EQ(last.dtype, Dtype::float32);
  EXPECT_EQ(last.shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(last.shape_text(), "[2, 1]");
  EXPECT_EQ(last.elements, 2);
  EXPECT_EQ(last.bytes, 8);
  EXPECT_EQ(last.offset, file.tensor("first").offset + 10);
  EXPECT_EQ(file.tensor("none").elements, 0);
  EXPECT_EQ(file.tensor("first").elements, 1);
  EXPECT_EQ(file.path(), folder_ / "a.safetensors");
}

TEST_F(ReadSafetensors, ScalarsAndTensorsWithoutElementsAreRead) {
  EXPECT_TRUE(same_bits(with_one("F32", "[]", bytes_of<float>({3})).read("x"), Tensor::of<float>({3}, {})));
  const SafetensorsFile file = with_one("F32", "[0, 7]", "");
  EXPECT_EQ(file.view("x").shape(), Shape({0, 7}));
  EXPECT_EQ(file.read("x", Dtype::float64).shape(), Shape({0, 7}));
  EXPECT_EQ(names_of(opened(safetensors("{}"))), std::vector<std::string>());
}

TEST_F(ReadSafetensors, HalfPrecisionIsWidenedOnRequest) {
  const SafetensorsFile halves = with_one("F16", "[2]", bytes_of<std::uint16_t>({0x3e00, 0x7c00}));
  EXPECT_EQ(halves.read("x").dtype(), Dtype::float16);
  EXPECT_TRUE(same_bits(halves.read("x", Dtype::float32),
                        Tensor::of<float>({1.5f, std::numeric_limits<float>::infinity()}, {2})));
  EXPECT_TRUE(same_bits(with_one("BF16", "[1]", bytes_of<std::uint16_t>({0xbfc0})).read("x", Dtype::float64),
                        Tensor::of<double>({-1.5}, {1})));
  EXPECT_TRUE(same_bits(with_one("F32", "[1]", bytes_of<float>({0.5f})).read("x", Dtype::float64),
                        Tensor::of<double>({0.5}, {1})));
  EXPECT_TRUE(same_bits(with_one("F64", "[1]", bytes_of<double>({0.1})).read("x", Dtype::float32),
                        Tensor::of<float>({0.1f}, {1})));
}

TEST_F(ReadSafetensors, NumbersThatWouldBecomeInfiniteAreRefused) {
  const double infinity = std::numeric_limits<double>::infinity();
  const SafetensorsFile wide = with_one("F64", "[3]", bytes_of<double>({1, -infinity, 1e39}));
  expect_error<DtypeError>([&] { wide.read("x", Dtype::float32); },
                           {"a.safetensors'", "tensor 'x'", "the element 1e+39 does not fit in float32"});
  expect_error<DtypeError>([&] { with_one("F32", "[1]", bytes_of<float>({-65520})).read("x", Dtype::float16); },
                           {"tensor 'x'", "the element -65520 does not fit in float16"});
  expect_error<DtypeError>(
      [&] { with_one("BF16", "[1]", bytes_of<std::uint16_t>({0x4780})).read("x", Dtype::float16); },
      {"tensor 'x'", "the element 65536 does not fit in float16"});
  // What is infinite in the file stays so, and NaN stays NaN.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor read = with_one("F64", "[3]", bytes_of<double>({infinity, nan, 3e38})).read("x", Dtype::float32);
  EXPECT_EQ(read.values<float>()[0], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(read.values<float>()[1]));
  EXPECT_EQ(read.values<float>()[2], 3e38f);
}

TEST_F(ReadSafetensors, ConversionsThatDoNotExistAreRefusedByName) {
  expect_error<DtypeError>([&] { with_one("I32", "[1]", bytes_of<std::int32_t>({1})).read("x", Dtype::float32); },
                           {"a.safetensors'", "tensor 'x'", "int32 does not convert to float32"});
  expect_error<DtypeError>([&] { with_one("I64", "[1]", bytes_of<std::int64_t>({1L << 40})).read("x", Dtype::int32); },
                           {"a.safetensors'", "tensor 'x'", "does not fit in int32"});
}

TEST_F(ReadSafetensors, ElementsThatAreNotAlignedAreCopiedAndNeverShown) {
  for (const std::size_t beyond : {1u, 2u, 4u, 7u}) {
    const SafetensorsFile file = with_one("F64", "[2]", bytes_of<double>({1, 2}), beyond);
    EXPECT_FALSE(file.tensor("x").is_aligned());
    expect_error<FileError>([&] { file.view("x"); },
                            {"tensor 'x'", "no multiple of their size of 8", "read() can copy"});
    EXPECT_TRUE(same_bits(file.read("x"), Tensor::of<double>({1, 2}, {2})));
    EXPECT_TRUE(same_bits(file.read("x", Dtype::float32), Tensor::of<float>({1, 2}, {2})));
  }
  EXPECT_TRUE(with_one("F32", "[1]", bytes_of<float>({1}), 4).tensor("x").is_aligned());
  EXPECT_TRUE(with_one("BOOL", "[1]", "\1", 3).tensor("x").is_aligned());
}

TEST_F(ReadSafetensors, ABoolThatIsNeitherZeroNorOneIsRefused) {
  const SafetensorsFile file = with_one("BOOL", "[3]", std::string("\1\0\2", 3));
  expect_error<FileError>([&] { file.view("x"); }, {"tensor 'x'", "bool element 2 is stored as 2"});
  expect_error<FileError>([&] { file.read("x"); }, {"tensor 'x'", "bool element 2 is stored as 2"});
}

TEST_F(ReadSafetensors, ARankAboveEightIsListedOnly) {
  const SafetensorsFile file = with_one("F32", "[1,1,1,1,1,1,1,1,2]", bytes_of<float>({1, 2}));
  EXPECT_EQ(file.tensor("x").shape.size(), 9u);
  expect_error<FileError>([&] { file.view("x"); }, {"tensor 'x'", "rank 9 is more than 8"});
  expect_error<FileError>([&] { file.read("x"); }, {"rank 9 is more than 8"});
  EXPECT_TRUE(with_one("F32", "[1,1,1,1,1,1,1,2]", bytes_of<float>({1, 2})).view("x"));
}

TEST_F(ReadSafetensors, MetadataIsText) {
  const SafetensorsFile file =
      opened(safetensors(R"({"__metadata__":{"format":"pt","a":"","ü":"\u00fc\ud83d\ude00\n"}})"));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"a", ""}, {"format", "pt"}, {"ü", "ü😀\n"}}));
}

TEST_F(ReadSafetensors, NamesAreAnyText) {
  const SafetensorsFile file =
      opened(safetensors(object({entry(R"(\"\\\/\b\f\n\r\t\u0000\u00E4\u6f22\ud834\udd1e)", "F32", "[0]", "[0,0]"),
                                 entry("", "F32", "[0]", "[0,0]")})));
  const std::string name = std::string("\"\\/\b\f\n\r\t\0", 9) + "ä漢𝄞";
  EXPECT_TRUE(file.contains(name));
  EXPECT_TRUE(file.contains(""));
  EXPECT_FALSE(file.contains("x"));
}

TEST_F(ReadSafetensors, BlanksOfJsonAreAllowedWhereJsonAllowsThem) {
  const SafetensorsFile file = opened(
      safetensors("{ \"x\" :\t{\n\"shape\" : [ 1 , 1 ] ,\r\"data_offsets\":[ 0 , 4 ], \"dtype\" : \"F32\" } }  \n",
                  std::string(4, '\0')));
  EXPECT_EQ(file.tensor("x").shape, (std::vector<std::int64_t>{1, 1}));
}

TEST_F(ReadSafetensors, AMissingTensorIsNamedWithTheFileAndTheNearestName) {
  const SafetensorsFile file = opened(safetensors(
      object({entry("encoder.weight", "F32", "[0]", "[0,0]"), entry("encoder.bias", "F32", "[0]", "[0,0]")})));
  for (const auto& ask : std::vector<std::function<void(const char*)>>{[&](const char* name) { file.view(name); },
                                                                       [&](const char* name) { file.read(name); },
                                                                       [&](const char* name) { file.tensor(name); }}) {
    expect_error<FileError>(
        [&] { ask("encoder.wieght"); },
        {"cannot read '", "a.safetensors': it has no tensor 'encoder.wieght'", "nearest name is 'encoder.weight'"});
  }
  expect_error<FileError>([&] { file.view("model.encoder.bias"); }, {"nearest name is 'encoder.bias'"});
  expect_error<FileError>([&] { file.view("bias"); }, {"nearest name is 'encoder.bias'"});
  try {
    file.view("something else\n");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_TRUE(std::string(error.what()).ends_with("it has no tensor 'something else\\x0a'")) << error.what();
  }
}

TEST_F(ReadSafetensors, ViewsOutliveTheFileObjectThatMadeThemAsLongAsACopyLives) {
  auto first = std::make_unique<SafetensorsFile>(with_one("F32", "[1]", bytes_of<float>({4})));
  const View view = first->view("x");
  const SafetensorsFile copy = *first;
  first.reset();
  EXPECT_EQ(view.as<float>()[0], 4);
  EXPECT_EQ(copy.view("x").data(), view.data());
}

TEST_F(ReadSafetensors, AFileThatIsReplacedStaysWhatItWas) {
  const SafetensorsFile file = with_one("F32", "[1]", bytes_of<float>({4}));
  const View view = file.view("x");
  const Tensor other({1000});
  write_safetensors(folder_ / "a.safetensors", std::vector<NamedView>{{"x", other}});
  EXPECT_EQ(view.as<float>()[0], 4);
  EXPECT_EQ(SafetensorsFile(folder_ / "a.safetensors").view("x").elements(), 1000);
}

TEST_F(ReadSafetensors, WhatCannotBeOpenedIsNamed) {
  expect_error<FileError>([&] { SafetensorsFile(folder_ / "none"); },
                          {"cannot read '", "none'", "No such file or directory"});
  expect_error<FileError>([&] { SafetensorsFile(folder_ / "."); }, {"it is a directory"});
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  expect_error<FileError>([&] { SafetensorsFile(folder_ / "pipe"); }, {"pipe'", "not a regular file"});
}

TEST_F(ReadSafetensors, AFileMayBeLargerThanMemoryWhenOnlyItsHeaderIsLookedAt) {
  const std::int64_t bytes = std::int64_t{1} << 40;
  put(folder_ / "a.safetensors", safetensors(object({entry("x", "U8", "[1099511627776]", std::size_t{1} << 40)})));
  const auto header = static_cast<std::int64_t>(std::filesystem::file_size(folder_ / "a.safetensors"));
  std::error_code error;
  std::filesystem::resize_file(folder_ / "a.safetensors", static_cast<std::uintmax_t>(header + bytes), error);
  if (error) GTEST_SKIP() << "this file system has no files of 1 TB";
  EXPECT_EQ(SafetensorsFile(folder_ / "a.safetensors").tensor("x").bytes, bytes);
}

}  // namespace
}  // namespace qkv::test
