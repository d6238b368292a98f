// io/file_reader.h: regular files, opened for reading: piece by piece, or mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <qkv/error.h>

namespace qkv {

// Holds a descriptor. Refuses folders, pipes and devices, and never waits for one. Throws FileError with the reason
// only; naming_file adds the path.
class FileReader {
 public:
  explicit FileReader(const std::filesystem::path& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  std::uint64_t bytes() const { return bytes_; }  // as they were when it was opened
  // out.size() bytes from position `at` on.
  void read(std::uint64_t at, std::span<std::byte> out) const;
  // The whole file, which must not be empty, for reading. Outlives the reader.
  std::shared_ptr<const std::byte> map() const;

 private:
  int file_;
  std::uint64_t bytes_ = 0;
};

// "cannot read 'model.safetensors': ..."
std::string cannot_read(const std::filesystem::path& path, const std::string& reason);

// What `body` returns. The reason of a FileError that it throws gets the path.
template <class Body>
auto naming_file(const std::filesystem::path& path, Body body) {
  try {
    return body();
  } catch (const FileError& error) {
    throw FileError(cannot_read(path, error.what()));
  }
}

}  // namespace qkv
