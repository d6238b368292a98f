// tests/io/npy_read_test.cpp: .npy files, good and hostile, to tensors.
#include <qkv/io.h>

#include <sys/stat.h>

#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/bytes.h"
#include "io/npy_parse.h"
#include "support/errors.h"

namespace qkv::test {
namespace {

Tensor parsed(const std::string& file) { return parse_npy(std::as_bytes(std::span(file))); }

template <class T>
std::vector<T> elements_of(const Tensor& tensor) {
  return {tensor.values<T>().begin(), tensor.values<T>().end()};
}

void expect_refused(const std::string& file, std::initializer_list<std::string> parts) {
  expect_error<FileError>([&] { parsed(file); }, parts);
}

void expect_text_refused(const std::string& text, std::initializer_list<std::string> parts) {
  expect_refused(npy(text, std::string(4, '\0')), parts);
}

TEST(ReadNpy, EveryDtypeIsRead) {
  EXPECT_EQ(elements_of<float>(parsed(npy(header_text("<f4", "(2,)"), bytes_of<float>({1.5f, -2})))),
            (std::vector<float>{1.5f, -2}));
  EXPECT_EQ(elements_of<double>(parsed(npy(header_text("<f8", "(1,)"), bytes_of<double>({0.1})))),
            std::vector<double>{0.1});
  const Tensor half = parsed(npy(header_text("<f2", "(1,)"), bytes_of<std::uint16_t>({0x3e00})));
  EXPECT_EQ(static_cast<float>(half.values<Float16>()[0]), 1.5f);
  EXPECT_EQ(elements_of<std::int32_t>(parsed(npy(header_text("<i4", "(1,)"), bytes_of<std::int32_t>({-7})))),
            std::vector<std::int32_t>{-7});
  EXPECT_EQ(elements_of<std::int64_t>(parsed(npy(header_text("<i8", "(1,)"), bytes_of<std::int64_t>({1L << 40})))),
            std::vector<std::int64_t>{1L << 40});
  const Tensor mask = parsed(npy(header_text("|b1", "(3,)"), std::string("\1\0\1", 3)));
  EXPECT_EQ(elements_of<bool>(mask), (std::vector<bool>{true, false, true}));
}

TEST(ReadNpy, EveryVersionAndRankIsRead) {
  for (const int major : {1, 2, 3}) {
    EXPECT_EQ(parsed(npy(header_text("<f4", "(1, 2)"), std::string(8, '\0'), major)).shape(), Shape({1, 2})) << major;
  }
  EXPECT_EQ(parsed(npy(header_text("<f4", "()"), std::string(4, '\0'))).shape(), Shape());
  EXPECT_EQ(parsed(npy(header_text("<f4", "(1, 1, 1, 1, 1, 1, 1, 2)"), std::string(8, '\0'))).shape(),
            Shape({1, 1, 1, 1, 1, 1, 1, 2}));
  EXPECT_EQ(parsed(npy(header_text("<f4", "(0, 7)"), "")).shape(), Shape({0, 7}));
}

TEST(ReadNpy, FortranOrderIsReadAsTheSameArray) {
  // [[0, 1, 2], [3, 4, 5]], column by column.
  const Tensor matrix = parsed(npy(header_text("<i4", "(2, 3)", true), bytes_of<std::int32_t>({0, 3, 1, 4, 2, 5})));
  EXPECT_EQ(matrix.shape(), Shape({2, 3}));
  EXPECT_EQ(elements_of<std::int32_t>(matrix), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  const Tensor cube = parsed(npy(header_text("<i4", "(2, 1, 3)", true), bytes_of<std::int32_t>({0, 3, 1, 4, 2, 5})));
  EXPECT_EQ(cube.shape(), Shape({2, 1, 3}));
  EXPECT_EQ(elements_of<std::int32_t>(cube), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(ReadNpy, KeysInAnyOrderAndBothQuotesAreRead) {
  EXPECT_EQ(parsed(npy("{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<f4\"}", std::string(4, '\0'))).shape(),
            Shape({1}));
  EXPECT_EQ(parsed(npy("{ 'shape' : ( 1 , 1 , ) , 'descr' : '<f4' , 'fortran_order' : False , }", std::string(4, '\0')))
                .shape(),
            Shape({1, 1}));
}

TEST(ReadNpy, AFileThatEndsTooEarlyIsRefusedWhereverItEnds) {
  const std::string whole = npy(header_text("<f4", "(2, 3)"), std::string(24, '\1'));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(parsed(whole.substr(0, length)), FileError) << length;
  }
  EXPECT_NO_THROW(parsed(whole));
  expect_refused(whole.substr(0, 5), {"not a .npy file"});
  expect_refused(whole.substr(0, 7), {"truncated in its header"});
  expect_refused(whole.substr(0, 9), {"truncated in its header"});
  expect_refused(whole.substr(0, 40), {"truncated", "claims 128 bytes", "the file has 40"});
  expect_refused(whole.substr(0, 128 + 23), {"truncated", "float32 of shape [2, 3] takes 24 bytes", "23 follow"});
}

TEST(ReadNpy, BytesAfterTheElementsAreRefused) {
  expect_refused(npy(header_text("<f4", "(2,)"), std::string(11, '\0')), {"3 bytes too many", "[2] takes 8 bytes"});
  expect_refused(npy(header_text("<f4", "(0,)"), "x"), {"1 bytes too many", "[0] takes 0 bytes"});
}

TEST(ReadNpy, WhatIsNoNpyFileIsRefused) {
  expect_refused("", {"not a .npy file"});
  expect_refused("PK\3\4 a zip archive", {"not a .npy file", "\\x93NUMPY"});
  expect_refused("\x93NUMPY\4" + std::string(20, '\0'), {"format version 4.0 is unknown"});
  expect_refused("\x93NUMPY\1\1" + std::string(20, '\0'), {"format version 1.1 is unknown"});
  expect_refused(std::string("\x93NUMPY\0\0", 8) + std::string(20, '\0'), {"format version 0.0 is unknown"});
}

TEST(ReadNpy, AHeaderThatLiesAboutItsLengthIsRefused) {
  expect_refused("\x93NUMPY\1" + std::string("\0\xff\xff{", 4), {"truncated", "claims 65545 bytes", "the file has 11"});
  expect_refused("\x93NUMPY\2" + std::string("\0\xff\xff\xff\xff{", 6), {"claims 4294967295 bytes", "more than 65535"});
  std::string shorter = npy(header_text("<f4", "(1,)"), std::string(4, '\0'));
  shorter[8] = 20;
  expect_refused(shorter, {"malformed"});
}

TEST(ReadNpy, ShapesThatOverflowAreRefusedBeforeAnythingIsAllocated) {
  expect_text_refused(header_text("<f4", "(4611686018427387904, 4)"), {"[4611686018427387904, 4]", "64 bits"});
  expect_text_refused(header_text("<f8", "(4611686018427387904,)"), {"64 bits"});
  expect_text_refused(header_text("<f4", "(0, 4611686018427387904, 4611686018427387904)"), {"64 bits"});
  expect_text_refused(header_text("<f4", "(99999999999999999999,)"), {"extent", "does not fit in 64 bits"});
  expect_text_refused(header_text("<f4", "(1000000000000,)"), {"truncated", "4000000000000 bytes", "4 follow"});
}

TEST(ReadNpy, ExtentsThatAreNoWholeNumbersAreRefused) {
  expect_text_refused(header_text("<f4", "(-1,)"), {"extent -1", "negative"});
  expect_text_refused(header_text("<f4", "(1.5,)"), {"malformed", "'.5"});
  expect_text_refused(header_text("<f4", "(1L,)"), {"malformed", "'L"});
  expect_text_refused(header_text("<f4", "(True,)"), {"malformed", "a whole number"});
  expect_text_refused(header_text("<f4", "(007,)"), {"malformed", "leading zeros"});
  expect_text_refused(header_text("<f4", "(1)"), {"malformed", "expected ,"});
  expect_text_refused(header_text("<f4", "(,)"), {"malformed", "a whole number"});
  expect_text_refused(header_text("<f4", "(1 2)"), {"malformed"});
  expect_text_refused(header_text("<f4", "(1, 1"), {"malformed"});
  expect_text_refused(header_text("<f4", "[1]"), {"malformed", "expected ("});
  expect_text_refused(header_text("<f4", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), {"rank is more than 8"});
}

TEST(ReadNpy, KeysThatAreUnknownMissingOrTwiceThereAreRefused) {
  expect_text_refused("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", {"'descr' twice"});
  expect_text_refused("{'shape': (1,), 'shape': (1,)}", {"'shape' twice"});
  expect_text_refused("{'fortran_order': True, 'fortran_order': True}", {"'fortran_order' twice"});
  expect_text_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x\ny': 1}", {"unknown key 'x\\x0ay'"});
  expect_text_refused("{'descr': '<f4', 'fortran_order': False}", {"lacks the key 'shape'"});
  expect_text_refused("{'descr': '<f4', 'shape': (1,)}", {"lacks the key 'fortran_order'"});
  expect_text_refused("{}", {"lacks the key 'descr'"});
}

TEST(ReadNpy, TextThatIsNoDictionaryIsRefused) {
  expect_text_refused("", {"malformed at byte", "expected {"});
  expect_text_refused("__import__('os').system('true')", {"malformed at byte 0", "expected {"});
  expect_text_refused("{descr: '<f4'}", {"a string"});
  expect_text_refused("{'descr", {"a string that ends"});
  expect_text_refused("{'descr' '<f4'}", {"expected :"});
  expect_text_refused("{'descr': '<f4' 'shape': (1,)}", {"expected }"});
  expect_text_refused("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", {"True or False"});
  expect_text_refused("{'descr': 4}", {"a string"});
  expect_text_refused(header_text("<f4", "(1,)") + "x", {"spaces and one newline"});
  expect_text_refused(header_text("<f4", "(1,)") + "\n\n", {"spaces and one newline"});
  expect_text_refused(header_text("<f4", "(1,)") + std::string(1, '\0'), {"spaces and one newline", "\\x00"});
}

TEST(ReadNpy, OtherElementsAreRefusedByName) {
  expect_text_refused(header_text(">f4", "(1,)"), {"big endian ('>f4')", "only little endian"});
  expect_text_refused(header_text("|O", "(1,)"), {"Python objects", "never read"});
  expect_text_refused(header_text("<u4", "(1,)"), {"dtype '<u4' is not read", "float32"});
  expect_text_refused(header_text("<c8", "(1,)"), {"dtype '<c8' is not read"});
  expect_text_refused(header_text("<f4\x1b[2J", "(1,)"), {"'<f4\\x1b[2J'"});
  expect_text_refused(header_text(std::string(500, 'x'), "(1,)"), {std::string(40, 'x') + "…'"});
  expect_text_refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", {"structured type"});
}

TEST(ReadNpy, ABoolThatIsNeitherZeroNorOneIsRefused) {
  expect_refused(npy(header_text("|b1", "(3,)"), std::string("\1\0\2", 3)), {"bool element 2", "stored as 2"});
}

TEST(ReadNpy, AFileIsReadByItsPath) {
  const Folder folder;
  put(folder / "a.npy", npy(header_text("<f4", "(2,)"), bytes_of<float>({1, 2})));
  EXPECT_EQ(elements_of<float>(read_npy(folder / "a.npy")), (std::vector<float>{1, 2}));
}

TEST(ReadNpy, ErrorsNameThePathInOneLine) {
  const Folder folder;
  put(folder / "a\nb.npy", "no array");
  expect_error<FileError>([&] { read_npy(folder / "a\nb.npy"); },
                          {"cannot read '", "a\\x0ab.npy': ", "not a .npy file"});
  expect_error<FileError>([&] { read_npy(folder / "none.npy"); }, {"none.npy'", "No such file or directory"});
}

TEST(ReadNpy, WhatIsNoRegularFileIsRefusedWithoutWaitingForIt) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error<FileError>([&] { read_npy(folder / "pipe"); }, {"pipe'", "not a regular file"});
  expect_error<FileError>([&] { read_npy("/dev/zero"); }, {"'/dev/zero'", "not a regular file"});
  expect_error<FileError>([&] { read_npy(folder / "."); }, {"it is a directory"});
}

}  // namespace
}  // namespace qkv::test
