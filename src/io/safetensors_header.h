// io/safetensors_header.h: the beginning of a safetensors file: which tensors follow.
//
//   length of the text (8 bytes, little endian)  text  elements of all tensors, one after the other
//
// The text is a JSON object of tensors, and of strings that describe the file:
//
//   {"__metadata__":{"format":"pt"},"bias":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}
//
// Offsets are counted from the end of the text, which may be padded with blanks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qkv/io.h>

namespace qkv {

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // as they follow each other in the file
  std::vector<std::size_t> by_name;   // their places, in the order of their names
  std::map<std::string, std::string> metadata;

  const StoredTensor* find(std::string_view name) const;  // nullptr where there is none
};

// Bytes before the text, and the longest text that the format allows.
inline constexpr std::size_t safetensors_start = 8, safetensors_text_limit = 100'000'000;

// The two steps of reading, so that a file need not be in memory at once. They throw FileError with the reason only;
// who knows the path adds it.
std::size_t safetensors_text_length(std::span<const std::byte> first_bytes, std::uint64_t file_bytes);
SafetensorsHeader parse_safetensors_text(std::string_view text, std::uint64_t file_bytes);

// The elements of a tensor of a file that is in memory, from `file` on. Throws FileError and DtypeError with the
// reason only.
View stored_view(const StoredTensor& tensor, const std::byte* file);
Tensor stored_copy(const StoredTensor& tensor, const std::byte* file);

// What comes before the elements of these tensors, and the order in which they are to follow.
struct SafetensorsStart {
  std::string bytes;
  std::vector<std::size_t> order;
};
SafetensorsStart safetensors_start_of(std::span<const NamedView> tensors,
                                      const std::map<std::string, std::string>& metadata);

}  // namespace qkv
