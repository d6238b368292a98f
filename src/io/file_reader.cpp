// io/file_reader.cpp: regular files, opened for reading: piece by piece, or mapped.
#include "io/file_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/message.h"
#include "base/printable.h"
#include "io/refuse.h"

namespace qkv {
namespace {

[[noreturn]] void fail_by_system() { refuse(std::system_category().message(errno)); }

void require_regular(const struct stat& status) {
  if (S_ISDIR(status.st_mode)) refuse("it is a directory");
  if (!S_ISREG(status.st_mode)) refuse("it is not a regular file");
}

}  // namespace

// Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
FileReader::FileReader(const std::filesystem::path& path)
    : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (file_ < 0) fail_by_system();
  try {
    struct stat status = {};
    if (fstat(file_, &status) != 0) fail_by_system();
    require_regular(status);
    bytes_ = static_cast<std::uint64_t>(status.st_size);
  } catch (...) {
    close(file_);
    throw;
  }
}

FileReader::~FileReader() { close(file_); }

void FileReader::read(std::uint64_t at, std::span<std::byte> out) const {
  constexpr std::size_t part = std::size_t{1} << 30;  // Linux reads at most 2 GB at a time
  while (!out.empty()) {
    const ssize_t got = pread(file_, out.data(), std::min(out.size(), part), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_by_system();
    if (got == 0) refuse("it became shorter while it was read");
    at += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::shared_ptr<const std::byte> FileReader::map() const {
  const std::size_t bytes = bytes_;
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file_, 0);
  if (memory == MAP_FAILED) fail_by_system();
  return {static_cast<const std::byte*>(memory),
          [bytes](const std::byte* mapped) { munmap(const_cast<std::byte*>(mapped), bytes); }};
}

std::string cannot_read(const std::filesystem::path& path, const std::string& reason) {
  return message("cannot read ", printable(path.native()), ": ", reason);
}

}  // namespace qkv
