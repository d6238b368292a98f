// io/npy.cpp: .npy files to tensors and back.
#include <qkv/npy.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include <qkv/error.h>

#include "base/function_ref.h"
#include "base/message.h"
#include "base/printable.h"
#include "io/file_writer.h"
#include "io/npy_header.h"
#include "io/npy_parse.h"

static_assert(std::endian::native == std::endian::little, "elements are read and written as they lie in memory");

namespace qkv {
namespace {

// Copies out.size() bytes from position `at` on; throws FileError where there are fewer.
using ReadAt = FunctionRef<void(std::uint64_t at, std::span<std::byte> out)>;

void require_booleans(const Tensor& tensor) {
  const auto* bytes = static_cast<const unsigned char*>(tensor.view().data());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    if (bytes[i] > 1) {
      throw FileError(message("its bool element ", i, " is stored as ", int{bytes[i]}, ", not as 0 or 1"));
    }
  }
}

// The axes in reverse order: what lies in memory in Fortran order is this in C order.
Shape reversed(const Shape& shape) {
  std::vector<std::int64_t> extents(shape.begin(), shape.end());
  std::reverse(extents.begin(), extents.end());
  return Shape(extents);
}

View with_axes_reversed(View view) {
  for (int axis = 0; axis < view.rank() / 2; ++axis) view = view.swapped(axis, view.rank() - 1 - axis);
  return view;
}

Tensor read_array(std::uint64_t file_bytes, ReadAt read_at) {
  std::vector<std::byte> first(std::min<std::uint64_t>(file_bytes, npy_start_limit));
  read_at(0, first);
  const NpyStart start = parse_npy_start(first);
  const std::uint64_t data_begin = start.text_begin + start.text_length;
  if (data_begin > file_bytes) {
    throw FileError(message("it is truncated: its header claims ", data_begin, " bytes, the file has ", file_bytes));
  }
  std::string text(start.text_length, '\0');
  read_at(start.text_begin, std::as_writable_bytes(std::span(text)));
  const NpyHeader header = parse_npy_text(text);
  const std::size_t data_bytes = npy_data_bytes(header, file_bytes - data_begin);

  Tensor tensor(header.fortran_order ? reversed(header.shape) : header.shape, header.dtype);
  read_at(data_begin, {static_cast<std::byte*>(tensor.view().data()), data_bytes});
  if (header.dtype == Dtype::boolean) require_booleans(tensor);
  return header.fortran_order ? Tensor::copy_of(with_axes_reversed(tensor)) : std::move(tensor);
}

// A descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

[[noreturn]] void fail_by_system() { throw FileError(std::system_category().message(errno)); }

void read_at_offset(int file, std::uint64_t at, std::span<std::byte> out) {
  constexpr std::size_t part = std::size_t{1} << 30;  // Linux reads at most 2 GB at a time
  while (!out.empty()) {
    const ssize_t got = pread(file, out.data(), std::min(out.size(), part), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_by_system();
    if (got == 0) throw FileError("it became shorter while it was read");
    at += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace

Tensor parse_npy(std::span<const std::byte> file) {
  return read_array(file.size(), [&](std::uint64_t at, std::span<std::byte> out) {
    if (!out.empty()) std::memcpy(out.data(), file.data() + at, out.size());
  });
}

Tensor read_npy(const std::filesystem::path& path) {
  try {
    // Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.number() < 0) fail_by_system();
    struct stat status = {};
    if (fstat(file.number(), &status) != 0) fail_by_system();
    if (S_ISDIR(status.st_mode)) throw FileError("it is a directory");
    if (!S_ISREG(status.st_mode)) throw FileError("it is not a regular file");
    return read_array(static_cast<std::uint64_t>(status.st_size),
                      [&](std::uint64_t at, std::span<std::byte> out) { read_at_offset(file.number(), at, out); });
  } catch (const FileError& error) {
    throw FileError(message("cannot read ", printable(path.native()), ": ", error.what()));
  }
}

void write_npy(const std::filesystem::path& path, View array) {
  if (!array) throw ShapeError(message("write_npy: there is no array to write to ", printable(path.native())));
  const std::string header = npy_header_of(array.dtype(), array.shape());
  Tensor dense;
  if (!array.is_dense()) {
    dense = Tensor::copy_of(array);
    array = dense;
  }
  FileWriter file(path);
  file.write(std::as_bytes(std::span(header)));
  file.write({array.as<std::byte>(), static_cast<std::size_t>(array.elements()) * size_of(array.dtype())});
  file.commit();
}

}  // namespace qkv
