// tests/fuzz/npy_fuzz.cpp: the .npy reader on arbitrary bytes: it refuses with a FileError of one line, or what it read
// survives being written and read again. Built with clang and -fsanitize=fuzzer,address; seeds come from
// make_corpus.py.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qkv/error.h>
#include <qkv/tensor.h>

#include "io/npy_header.h"
#include "io/npy_parse.h"

namespace {

void require(bool holds) {
  if (!holds) __builtin_trap();
}

std::span<const std::byte> bytes_of(qkv::View array) {
  return {array.as<std::byte>(), static_cast<std::size_t>(array.elements()) * qkv::size_of(array.dtype())};
}

void require_round_trip(const qkv::Tensor& array) {
  const std::string header = qkv::npy_header_of(array.dtype(), array.shape());
  const std::span<const std::byte> start = std::as_bytes(std::span(header)), elements = bytes_of(array);
  std::vector<std::byte> file(start.begin(), start.end());
  file.insert(file.end(), elements.begin(), elements.end());
  const qkv::Tensor again = qkv::parse_npy(file);
  require(again.dtype() == array.dtype() && again.shape() == array.shape());
  require(elements.empty() || std::memcmp(bytes_of(again).data(), elements.data(), elements.size()) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  qkv::Tensor array;
  try {
    array = qkv::parse_npy(std::as_bytes(std::span(data, size)));
  } catch (const qkv::FileError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
    return 0;
  }
  require_round_trip(array);
  return 0;
}
