// io/file_writer.h: files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace qkv {

// Writes to a temporary name beside the target. commit() syncs it, renames it over the target and syncs the directory;
// without commit the temporary is removed and the target stays as it was. An existing target keeps its permissions; a
// symbolic link is followed. Not for pipes and devices: the target must be a regular file or new.
// All functions throw FileError with the path and the reason.
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& target);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  [[noreturn]] void fail(const std::string& reason) const;
  void discard() noexcept;

  std::filesystem::path named_;  // the target as the caller wrote it, for messages
  std::string name_;             // the target's name in its directory
  std::string temporary_;        // its name until commit; empty once it is gone
  int directory_ = -1;
  int file_ = -1;
};

}  // namespace qkv
