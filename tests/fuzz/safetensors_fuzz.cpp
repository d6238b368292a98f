// tests/fuzz/safetensors_fuzz.cpp: the safetensors reader on arbitrary bytes: it refuses with a FileError of one line,
// or every tensor lies inside the file and what qkv can read survives being written and read again. Built with clang
// and -fsanitize=fuzzer,address; seeds come from make_corpus.py.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qkv/error.h>
#include <qkv/io.h>

#include "io/safetensors_header.h"

namespace {

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void require_one_line(const qkv::Error& error) {
  require(std::string_view(error.what()).find('\n') == std::string_view::npos);
}

qkv::SafetensorsHeader parsed(std::string_view file) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(file));
  const std::size_t length =
      qkv::safetensors_text_length(bytes.first(std::min(bytes.size(), qkv::safetensors_start)), file.size());
  return qkv::parse_safetensors_text(file.substr(qkv::safetensors_start, length), file.size());
}

std::string_view elements_of(qkv::View dense) {
  return {dense.as<char>(), static_cast<std::size_t>(dense.elements()) * qkv::size_of(dense.dtype())};
}

// All that can be read; the file is aligned, as a mapping is.
std::vector<qkv::NamedView> readable(const qkv::SafetensorsHeader& header, std::string_view file,
                                     std::deque<qkv::Tensor>& copies) {
  const auto* bytes = reinterpret_cast<const std::byte*>(file.data());
  std::vector<qkv::NamedView> tensors;
  for (const qkv::StoredTensor& tensor : header.tensors) {
    require(tensor.offset >= 0 && tensor.bytes >= 0 && tensor.elements >= 0);
    require(static_cast<std::size_t>(tensor.offset) + static_cast<std::size_t>(tensor.bytes) <= file.size());
    require(header.find(tensor.name) == &tensor);
    try {
      qkv::View view = copies.emplace_back(qkv::stored_copy(tensor, bytes));
      if (tensor.is_aligned()) {
        const qkv::View seen = qkv::stored_view(tensor, bytes);
        require(seen.shape() == view.shape() && elements_of(seen) == elements_of(view));
      }
      tensors.push_back({tensor.name, view});
    } catch (const qkv::FileError& error) {
      require_one_line(error);
    } catch (const qkv::DtypeError& error) {
      require(!tensor.dtype);
    }
  }
  return tensors;
}

void require_round_trip(const std::vector<qkv::NamedView>& tensors, const qkv::SafetensorsHeader& header) {
  const qkv::SafetensorsStart start = qkv::safetensors_start_of(tensors, header.metadata);
  require(start.bytes.size() % 8 == 0);
  std::string file = start.bytes;
  for (const std::size_t place : start.order) file += elements_of(tensors[place].value);
  const qkv::SafetensorsHeader again = parsed(file);
  require(again.tensors.size() == tensors.size() && again.metadata == header.metadata);
  for (const qkv::NamedView& tensor : tensors) {
    const qkv::StoredTensor* stored = again.find(tensor.name);
    require(stored != nullptr && stored->is_aligned() && stored->dtype == tensor.value.dtype());
    require(qkv::Shape(stored->shape) == tensor.value.shape());
    const std::size_t bytes = static_cast<std::size_t>(stored->bytes);
    require(std::string_view(file).substr(static_cast<std::size_t>(stored->offset), bytes) ==
            elements_of(tensor.value));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  qkv::SafetensorsHeader header;
  try {
    header = parsed(file);
  } catch (const qkv::FileError& error) {
    require_one_line(error);
    return 0;
  }
  // A view must be aligned to the dtype, and so must the memory that stands for the mapping.
  std::vector<std::uint64_t> room(size / 8 + 1);
  std::memcpy(room.data(), file.data(), size);
  std::deque<qkv::Tensor> copies;
  require_round_trip(readable(header, {reinterpret_cast<const char*>(room.data()), size}, copies), header);
  return 0;
}
