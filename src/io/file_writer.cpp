// io/file_writer.cpp: files that appear whole or not at all.
#include "io/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include <qkv/error.h>

#include "base/message.h"
#include "base/printable.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

std::string system_reason() { return std::system_category().message(errno); }

// Of fixed length, so that any name the file system takes for the target can have a temporary beside it.
std::string temporary_name() {
  static std::atomic<unsigned> counter = 0;
  return message(".qkv-", getpid(), "-", counter++, ".tmp");
}

}  // namespace

FileWriter::FileWriter(const fs::path& target) : named_(target) {
  std::error_code error;
  fs::path real = target;
  if (fs::is_symlink(target, error)) {
    real = fs::canonical(target, error);
    if (error) fail("it is a symbolic link that leads nowhere");
  }
  name_ = real.filename().string();
  if (name_.empty()) fail("it names no file");
  const fs::path parent = real.has_parent_path() ? real.parent_path() : ".";

  directory_ = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory_ < 0) fail(system_reason());
  try {
    struct stat existing = {};
    const bool exists = fstatat(directory_, name_.c_str(), &existing, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && S_ISDIR(existing.st_mode)) fail("it is a directory");
    if (exists && !S_ISREG(existing.st_mode)) fail("it is not a regular file");
    do {
      temporary_ = temporary_name();
      file_ = openat(directory_, temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (file_ < 0 && errno == EEXIST);
    if (file_ < 0) {
      const std::string reason = system_reason();
      temporary_.clear();
      fail(reason);
    }
    if (exists && fchmod(file_, existing.st_mode & 07777) != 0) fail(system_reason());
  } catch (...) {
    discard();
    throw;
  }
}

FileWriter::~FileWriter() { discard(); }

void FileWriter::write(std::span<const std::byte> bytes) {
  // Linux writes at most 2 GB at a time; parts of 1 GB stay below.
  constexpr std::size_t part = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), std::min(bytes.size(), part));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(system_reason());
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void FileWriter::commit() {
  if (fsync(file_) != 0) fail(system_reason());
  if (close(std::exchange(file_, -1)) != 0) fail(system_reason());
  if (renameat(directory_, temporary_.c_str(), directory_, name_.c_str()) != 0) fail(system_reason());
  temporary_.clear();
  // Some file systems cannot sync a directory and say EINVAL; there is nothing more to do on them.
  if (fsync(directory_) != 0 && errno != EINVAL)
    fail("the file is there but may not survive a crash: " + system_reason());
}

void FileWriter::fail(const std::string& reason) const {
  throw FileError(message("cannot write ", printable(named_.native()), ": ", reason));
}

void FileWriter::discard() noexcept {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlinkat(directory_, temporary_.c_str(), 0);
  if (directory_ >= 0) close(directory_);
  temporary_.clear();
  file_ = directory_ = -1;
}

}  // namespace qkv
