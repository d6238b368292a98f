// tests/io/npy_write_test.cpp: tensors to .npy files, whole or not at all.
#include <qkv/io.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "io/bytes.h"
#include "io/file_writer.h"
#include "support/close.h"
#include "support/errors.h"

namespace qkv::test {
namespace {

namespace fs = std::filesystem;

TEST(WriteNpy, TheBytesAreThoseThatNumPyWrites) {
  const Folder folder;
  write_npy(folder / "a.npy", Tensor::of<float>({1, 2}, {2}));
  EXPECT_EQ(content_of(folder / "a.npy"), npy(header_text("<f4", "(2,)"), bytes_of<float>({1, 2})));
  write_npy(folder / "a.npy", Tensor({1, 0, 2}, Dtype::int64));
  EXPECT_EQ(content_of(folder / "a.npy"), npy(header_text("<i8", "(1, 0, 2)"), ""));
  write_npy(folder / "a.npy", Tensor({}, Dtype::boolean));
  EXPECT_EQ(content_of(folder / "a.npy"), npy(header_text("|b1", "()"), std::string(1, '\0')));
}

TEST(WriteNpy, EveryDtypeComesBackBitForBit) {
  const Folder folder;
  for (const Dtype dtype :
       {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::boolean, Dtype::int32, Dtype::int64}) {
    Tensor array({3, 5, 7}, dtype);
    auto* bytes = static_cast<unsigned char*>(array.view().data());
    const auto count = static_cast<std::size_t>(array.elements()) * size_of(dtype);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(dtype == Dtype::boolean ? i % 2 : i);
    write_npy(folder / "a.npy", array);
    EXPECT_TRUE(same_bits(read_npy(folder / "a.npy"), array)) << name_of(dtype);
  }
}

TEST(WriteNpy, AnyStridesAreWrittenDense) {
  const Folder folder;
  const Tensor array = Tensor::of<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  write_npy(folder / "a.npy", array.view().swapped(0, 1));
  EXPECT_TRUE(same_bits(read_npy(folder / "a.npy"), Tensor::of<float>({0, 3, 1, 4, 2, 5}, {3, 2})));
}

TEST(WriteNpy, WhatNpyDoesNotHaveIsRefused) {
  const Folder folder;
  expect_error<DtypeError>([&] { write_npy(folder / "a.npy", Tensor({2}, Dtype::bfloat16)); },
                           {"write_npy", "bfloat16 has no npy type", "float32"});
  expect_error<ShapeError>([&] { write_npy(folder / "a.npy", View()); }, {"write_npy", "no array", "a.npy"});
  EXPECT_EQ(folder.files(), 0);
}

TEST(WriteNpy, AFileThatIsThereIsReplacedAndKeepsItsPermissions) {
  const Folder folder;
  put(folder / "a.npy", "old");
  fs::permissions(folder / "a.npy", fs::perms::owner_read | fs::perms::owner_write);
  write_npy(folder / "a.npy", Tensor({2}));
  EXPECT_EQ(read_npy(folder / "a.npy").shape(), Shape({2}));
  EXPECT_EQ(fs::status(folder / "a.npy").permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(folder.files(), 1);
}

TEST(WriteNpy, ANewFileGetsTheUsualPermissions) {
  const Folder folder;
  const mode_t before = umask(027);
  write_npy(folder / "a.npy", Tensor({2}));
  umask(before);
  struct stat status = {};
  ASSERT_EQ(stat((folder / "a.npy").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(WriteNpy, ASymbolicLinkIsFollowed) {
  const Folder folder;
  fs::create_directory(folder / "sub");
  put(folder / "sub/real.npy", "old");
  fs::create_symlink("sub/real.npy", folder / "link.npy");
  write_npy(folder / "link.npy", Tensor({2}));
  EXPECT_TRUE(fs::is_symlink(folder / "link.npy"));
  EXPECT_EQ(read_npy(folder / "sub/real.npy").shape(), Shape({2}));
}

TEST(WriteNpy, TargetsThatAreNoFilesAreRefusedAndStay) {
  const Folder folder;
  fs::create_symlink("nowhere", folder / "dangling");
  fs::create_directory(folder / "folder");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const Tensor array({2});
  expect_error<FileError>([&] { write_npy(folder / "dangling", array); },
                          {"cannot write '", "dangling'", "leads nowhere"});
  expect_error<FileError>([&] { write_npy(folder / "folder", array); }, {"folder'", "it is a directory"});
  expect_error<FileError>([&] { write_npy(folder / "folder/", array); }, {"folder/'", "names no file"});
  expect_error<FileError>([&] { write_npy(folder / "pipe", array); }, {"pipe'", "not a regular file"});
  expect_error<FileError>([&] { write_npy(folder / "none/a.npy", array); },
                          {"none/a.npy'", "No such file or directory"});
  expect_error<FileError>([&] { write_npy("", array); }, {"''", "names no file"});
  expect_error<FileError>([&] { write_npy(folder / std::string(300, 'x'), array); }, {"File name too long"});
  EXPECT_EQ(folder.files(), 3);
}

TEST(WriteNpy, AFolderThatMayNotBeWrittenToIsRefused) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const Folder folder;
  fs::create_directory(folder / "closed");
  fs::permissions(folder / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  expect_error<FileError>([&] { write_npy(folder / "closed/a.npy", Tensor({2})); }, {"a.npy'", "Permission denied"});
}

// What happens when the disk is full, by way of a limit on the size of files.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_ = {};
};

TEST(WriteNpy, AFailureHalfwayLeavesTheOldFileAndNothingElse) {
  const Folder folder;
  put(folder / "a.npy", "old");
  {
    const FileSizeLimit limit(1000);
    expect_error<FileError>([&] { write_npy(folder / "a.npy", Tensor({1000})); },
                            {"cannot write '", "a.npy'", "too large"});
  }
  EXPECT_EQ(content_of(folder / "a.npy"), "old");
  EXPECT_EQ(folder.files(), 1);
}

TEST(FileWriter, WithoutCommitNothingHappens) {
  const Folder folder;
  {
    FileWriter file(folder / "a");
    file.write(std::as_bytes(std::span("text", 4)));
    EXPECT_EQ(folder.files(), 1);  // under its temporary name
    EXPECT_FALSE(fs::exists(folder / "a"));
  }
  EXPECT_EQ(folder.files(), 0);
}

TEST(FileWriter, ATemporaryThatAnotherProcessLeftIsInNobodysWay) {
  const Folder folder;
  for (int i = 0; i < 1000; ++i)
    put(folder / (".qkv-" + std::to_string(getpid()) + "-" + std::to_string(i) + ".tmp"), "");
  FileWriter file(folder / "a");
  file.write(std::as_bytes(std::span("text", 4)));
  file.commit();
  EXPECT_EQ(content_of(folder / "a"), "text");
  EXPECT_EQ(folder.files(), 1001);
}

TEST(FileWriter, TheLongestNameThatAFileSystemTakesIsWritten) {
  const Folder folder;
  write_npy(folder / std::string(255, 'x'), Tensor({2}));
  EXPECT_EQ(folder.files(), 1);
}

TEST(FileWriter, IfTheTargetBecameAFolderMeanwhileThatIsSaid) {
  const Folder folder;
  {
    FileWriter file(folder / "a");
    fs::create_directory(folder / "a");
    expect_error<FileError>([&] { file.commit(); }, {"cannot write '", "/a'", "directory"});
  }
  EXPECT_EQ(folder.files(), 1);
}

}  // namespace
}  // namespace qkv::test
