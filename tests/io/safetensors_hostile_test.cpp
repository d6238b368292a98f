// tests/io/safetensors_hostile_test.cpp: safetensors files that lie: each is refused, in one line that says why.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include <qkv/error.h>
#include <qkv/io.h>

#include "io/bytes.h"
#include "io/safetensors_bytes.h"
#include "io/safetensors_header.h"
#include "support/errors.h"

namespace qkv::test {
namespace {

SafetensorsHeader parsed(const std::string& file) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(file));
  const std::size_t length =
      safetensors_text_length(bytes.first(std::min(bytes.size(), safetensors_start)), file.size());
  return parse_safetensors_text(std::string_view(file).substr(safetensors_start, length), file.size());
}

void expect_refused(const std::string& file, const std::string& reason) {
  SCOPED_TRACE(file.substr(0, 200));
  expect_error<FileError>([&] { parsed(file); }, {reason});
  try {
    parsed(file);
  } catch (const FileError& error) {
    EXPECT_EQ(std::string(error.what()).find_first_of("\n\x1b"), std::string::npos) << error.what();
  }
}

// A file with a tensor x of these members, and 4 bytes.
std::string one(std::initializer_list<std::string> members) {
  std::string text = "{\"x\":";
  text.append(object(members)).append("}");
  return safetensors(text, std::string(4, '\0'));
}

const std::string dtype = R"("dtype":"F32")", shape = R"("shape":[1])", offsets = R"("data_offsets":[0,4])";

TEST(HostileSafetensors, TheOneThatTheOthersAreMadeFromIsFine) {
  EXPECT_EQ(parsed(one({dtype, shape, offsets})).tensors.size(), 1u);
}

TEST(HostileSafetensors, AHeaderThatLiesAboutItsLengthIsRefused) {
  expect_refused("", "no safetensors file: it has 0 bytes");
  expect_refused("1234567", "no safetensors file: it has 7 bytes");
  expect_refused(std::string(8, '\0'), "expected {, found its end");
  expect_refused(std::string("\x03\0\0\0\0\0\0\0{}", 10), "claim a header of 3 bytes, and 2 follow");
  expect_refused(std::string(8, '\xff') + "{}",
                 "claim a header of 18446744073709551615 bytes, and the format allows 100000000");
  expect_refused(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10),
                 "claim a header of 100000001 bytes, and the format allows");
  expect_refused(std::string("\0\xe1\xf5\x05\0\0\0\0{}", 10), "claim a header of 100000000 bytes, and 2 follow");
  expect_refused(std::string("\x93NUMPY\x01\0v and so on", 18), "no safetensors file");
  expect_refused("PK\3\4 a zip archive of PyTorch", "no safetensors file");
}

TEST(HostileSafetensors, AFileThatEndsTooEarlyIsRefusedWhereverItEnds) {
  const std::string whole = one({dtype, shape, offsets});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(parsed(whole.substr(0, length)), FileError) << length;
  }
  expect_refused(whole.substr(0, whole.size() - 1), "it is truncated: its tensors take 4 bytes, 3 follow the header");
  expect_refused(whole + "x", "it is too long: its tensors take 4 bytes, 5 follow the header");
  expect_refused(safetensors("{}", "x"), "it is too long: its tensors take 0 bytes, 1 follow the header");
}

TEST(HostileSafetensors, TextThatIsNotStrictJsonIsRefused) {
  const struct {
    const char* text;
    const char* reason;
  } cases[] = {
      {"", "expected {"},
      {" {}", "expected {, found ' {}'"},
      {"[]", "expected {"},
      {"null", "expected {"},
      {"{", "a string, found its end"},
      {"{}{}", "nothing after the last brace, found '{}'"},
      {"{},", "nothing after the last brace"},
      {"{}\xa0", "nothing after the last brace"},
      {"{,}", "a string, found ',}'"},
      {"{x:1}", "a string, found 'x:1}'"},
      {"{'x':1}", "a string"},
      {"{\"x\"}", "expected :, found '}'"},
      {"{\"x\":1}", "tensor 'x': its header is malformed at byte 5: expected {, found '1}'"},
      {"{\"x\":null}", "tensor 'x': its header is malformed"},
      {"{\"x\":[]}", "expected {, found '[]}'"},
      {"{\"x", "a string that ends"},
      {"{\"x\\", "an escape that JSON knows"},
      {"{\"\\x41\":1}", "an escape that JSON knows"},
      {"{\"\\u12\":1}", "an escape that JSON knows"},
      {"{\"\\u12g4\":1}", "an escape that JSON knows"},
      {"{\"\\u-123\":1}", "an escape that JSON knows"},
      {"{\"\\U1234\":1}", "an escape that JSON knows"},
      {"{\"\\ud800\":1}", "two surrogates"},
      {"{\"\\ud800x\":1}", "two surrogates"},
      {"{\"\\ud800\\n\":1}", "two surrogates"},
      {"{\"\\ud800\\ud800\":1}", "two surrogates"},
      {"{\"\\ud800\\u0041\":1}", "two surrogates"},
      {"{\"\\udc00\":1}", "two surrogates"},
      {"{\"\\udc00\\ud800\":1}", "two surrogates"},
      {"{\"a\nb\":1}", "no control character in a string"},
      {"{\"\x1f\":1}", "no control character in a string, found '\\x1f"},
      {"{\"\xff\":1}", "valid UTF-8"},
      {"{\"\xc0\x80\":1}", "valid UTF-8"},
      {"{\"\xed\xa0\x80\":1}", "valid UTF-8"},
      {"{\"\xf4\x90\x80\x80\":1}", "valid UTF-8"},
      {"{\"\xe6\xbc", "valid UTF-8"},
      {"{\"__metadata__\":{}", "expected }, found its end"},
      {"{\"__metadata__\":{},}", "a string, found '}'"},
      {"{\"__metadata__\":{}} // why", "nothing after the last brace"},
  };
  for (const auto& [text, reason] : cases) expect_refused(safetensors(text), reason);
  expect_refused(safetensors(std::string("{}\0", 3)), "nothing after the last brace, found '\\x00'");
  expect_refused(safetensors(std::string("{\"\0\":1}", 7)), "no control character in a string");
  expect_refused(safetensors("{\"x\":" + std::string(1'000'000, '[')), "tensor 'x'");
  expect_refused(safetensors("{\"x\":" + std::string(1'000'000, '{')), "tensor 'x'");
}

TEST(HostileSafetensors, ATensorLacksNothingAndHasNothingTwiceOrUnknown) {
  expect_refused(one({shape, offsets}), "tensor 'x': it lacks the key 'dtype'");
  expect_refused(one({dtype, offsets}), "tensor 'x': it lacks the key 'shape'");
  expect_refused(one({dtype, shape}), "tensor 'x': it lacks the key 'data_offsets'");
  expect_refused(one({}), "tensor 'x': it lacks the key 'dtype'");
  expect_refused(one({dtype, shape, offsets, dtype}), "tensor 'x': its key 'dtype' comes twice");
  expect_refused(one({dtype, shape, offsets, shape}), "tensor 'x': its key 'shape' comes twice");
  expect_refused(one({dtype, shape, offsets, offsets}), "tensor 'x': its key 'data_offsets' comes twice");
  expect_refused(one({dtype, shape, offsets, R"("\u0064type":"F32")"}), "its key 'dtype' comes twice");
  expect_refused(one({dtype, shape, offsets, R"("comment":"")"}), "tensor 'x': its key 'comment' is unknown");
  expect_refused(one({dtype, shape, offsets, R"("\u001b[2J":1)"}), "its key '\\x1b[2J' is unknown");
  expect_refused(one({dtype, shape, offsets, ""}), "a string, found '}}'");
}

TEST(HostileSafetensors, NamesThatComeTwiceAreRefused) {
  const std::string a = entry("a", "F32", "[0]", "[0,0]");
  expect_refused(safetensors(object({a, a})), "tensor 'a': its name comes twice");
  expect_refused(safetensors(object({a, entry("b", "F32", "[0]", "[0,0]"), entry("\\u0061", "I64", "[0]", "[0,0]")})),
                 "tensor 'a': its name comes twice");
  expect_refused(safetensors(R"({"__metadata__":{},"__metadata__":{}})"), "'__metadata__' comes twice");
  expect_refused(safetensors(R"({"__metadata__":{"k":"1","k":"1"}})"), "the key 'k' of its metadata comes twice");
}

TEST(HostileSafetensors, MetadataThatIsNotTextIsRefused) {
  for (const std::string value : {"1", "null", "true", "[]", "{}", "1.5"}) {
    expect_refused(safetensors("{\"__metadata__\":{\"k\":" + value + "}}"), "a string, found '" + value);
    if (value != "{}") expect_refused(safetensors("{\"__metadata__\":" + value + "}"), "expected {, found '" + value);
  }
}

TEST(HostileSafetensors, NumbersAreWholeAndFit) {
  const struct {
    const char* number;
    const char* reason;
  } cases[] = {{"-1", "its extent -1 is negative"},
               {"-0", "its extent -0 is negative"},
               {"01", "without leading zeros"},
               {"1.0", "expected ], found '.0"},
               {"1e0", "expected ], found 'e0"},
               {"0x1", "expected ], found 'x1"},
               {"+1", "a whole number"},
               {"\"1\"", "a whole number"},
               {"true", "a whole number"},
               {"NaN", "a whole number"},
               {",", "a whole number"},
               {"[1]", "a whole number"},
               {"1,", "a whole number"},
               {"1 1", "expected ], found '1]"},
               {"9223372036854775808", "its extent '9223372036854775808' does not fit in 64 bits"},
               {"99999999999999999999999999999999999", "does not fit in 64 bits"}};
  for (const auto& [number, reason] : cases) {
    std::string extents = "\"shape\":[";
    extents.append(number).append("]");
    expect_refused(one({dtype, extents, offsets}), reason);
    expect_refused(one({dtype, extents, offsets}), "tensor 'x': ");
  }
  for (const char* pair : {"[0]", "[]", "[0,4,4]", "4", "[0,-4]", "[0,4.0]", "[\"0\",4]", "{}"}) {
    std::string member = "\"data_offsets\":";
    member.append(pair);
    expect_refused(one({dtype, shape, member}), "tensor 'x': ");
  }
}

TEST(HostileSafetensors, SizesThatOverflowOrDoNotMatchAreRefused) {
  const auto expect_shape_refused = [](const std::string& type, const std::string& extents, const std::string& reason) {
    expect_refused(safetensors(object({entry("x", type, extents, "[0,4]")}), std::string(4, '\0')),
                   "tensor 'x': " + reason);
  };
  expect_shape_refused("F32", "[2]", "F32 of shape [2] takes 8 bytes, its data_offsets are 4 apart");
  expect_shape_refused("F64", "[]", "F64 of shape [] takes 8 bytes");
  expect_shape_refused("F32", "[0]", "F32 of shape [0] takes 0 bytes");
  expect_shape_refused("F32", "[4294967296,4294967296]",
                       "the size of its shape [4294967296, 4294967296] does not fit in 64 bits");
  expect_shape_refused("F32", "[4611686018427387905]", "the size of its shape [4611686018427387905] does not fit");
  expect_shape_refused("F32", "[0,9223372036854775807]", "the size of its shape [0, 9223372036854775807] does not fit");
  expect_shape_refused("F32", "[9223372036854775807,2,0]",
                       "the size of its shape [9223372036854775807, 2, 0] does not fit");
  expect_shape_refused("F4", "[7]", "its shape [7] of elements of 4 bits takes no whole number of bytes");
  expect_shape_refused("F6_E2M3", "[6]", "its shape [6] of elements of 6 bits takes no whole number of bytes");
  expect_shape_refused("F33", "[1]", "its dtype 'F33' is none that the format names");
  expect_shape_refused("f32", "[1]", "its dtype 'f32' is none");
  expect_shape_refused("", "[1]", "its dtype '' is none");
  // The text of a shape is cut, so that an error stays a line that can be read.
  std::string many = "[1";
  for (int i = 1; i < 100'000; ++i) many += ",1";
  expect_shape_refused("F64", many + "]", "F64 of shape [1, 1, 1");
}

TEST(HostileSafetensors, OffsetsWithAHoleOrAnOverlapAreRefused) {
  const auto file = [](const std::string& a, const std::string& b, std::size_t bytes) {
    return safetensors(object({entry("a", "U8", "[4]", a), entry("b", "U8", "[4]", b)}), std::string(bytes, '\0'));
  };
  EXPECT_NO_THROW(parsed(file("[4,8]", "[0,4]", 8)));
  expect_refused(file("[0,4]", "[0,4]", 8),
                 "tensor 'b': it begins at byte 0 of the elements, and 4 are taken: tensors overlap");
  expect_refused(file("[0,4]", "[3,7]", 7),
                 "tensor 'b': it begins at byte 3 of the elements, and 4 are taken: tensors overlap");
  expect_refused(file("[0,4]", "[5,9]", 9),
                 "tensor 'b': it begins at byte 5 of the elements, and 4 are taken: there is a hole");
  expect_refused(file("[1,5]", "[5,9]", 9),
                 "tensor 'a': it begins at byte 1 of the elements, and 0 are taken: there is a hole");
  expect_refused(file("[4,0]", "[0,4]", 8), "tensor 'a': its data_offsets 4 and 0 run backwards");
  expect_refused(file("[0,4]", "[9223372036854775803,9223372036854775807]", 8), "there is a hole");
  expect_refused(safetensors(object({entry("a", "U8", "[4]", "[0,4]"), entry("e", "U8", "[0]", "[2,2]")}), "1234"),
                 "tensor 'e': it begins at byte 2 of the elements, and 4 are taken: tensors overlap");
  expect_refused(safetensors(object({entry("e", "U8", "[0]", "[9,9]")})), "there is a hole");
}

TEST(HostileSafetensors, ErrorsNameThePathAndTheTensorInOneLine) {
  const Folder folder;
  put(folder / "a\nb", safetensors(object({entry("x\\ny", "F32", "[1]", "[0,8]")}), std::string(8, '\0')));
  expect_error<FileError>([&] { SafetensorsFile(folder / "a\nb"); },
                          {"cannot read '", "a\\x0ab': tensor 'x\\x0ay': F32 of shape [1]"});
}

}  // namespace
}  // namespace qkv::test
