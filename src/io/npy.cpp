// io/npy.cpp: .npy files to tensors and back.
#include <qkv/io.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <qkv/error.h>

#include "base/function_ref.h"
#include "base/message.h"
#include "base/printable.h"
#include "io/elements.h"
#include "io/file_reader.h"
#include "io/file_writer.h"
#include "io/npy_header.h"
#include "io/npy_parse.h"
#include "io/refuse.h"

namespace qkv {
namespace {

// Copies out.size() bytes from position `at` on; throws FileError where there are fewer.
using ReadAt = FunctionRef<void(std::uint64_t at, std::span<std::byte> out)>;

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
    refuse("it is truncated: its header claims ", data_begin, " bytes, the file has ", file_bytes);
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

}  // namespace

Tensor parse_npy(std::span<const std::byte> file) {
  return read_array(file.size(), [&](std::uint64_t at, std::span<std::byte> out) {
    if (!out.empty()) std::memcpy(out.data(), file.data() + at, out.size());
  });
}

Tensor read_npy(const std::filesystem::path& path) {
  return naming_file(path, [&] {
    const FileReader file(path);
    return read_array(file.bytes(), [&](std::uint64_t at, std::span<std::byte> out) { file.read(at, out); });
  });
}

void write_npy(const std::filesystem::path& path, View array) {
  if (!array) throw ShapeError(message("write_npy: there is no array to write to ", printable(path.native())));
  const std::string header = npy_header_of(array.dtype(), array.shape());
  FileWriter file(path);
  file.write(std::as_bytes(std::span(header)));
  write_elements(file, array);
  file.commit();
}

}  // namespace qkv
