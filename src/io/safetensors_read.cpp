// io/safetensors_read.cpp: the header of a safetensors file, read strictly, and its elements.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include <qkv/error.h>

#include "base/message.h"
#include "io/dense_size.h"
#include "io/elements.h"
#include "io/json.h"
#include "io/refuse.h"
#include "io/safetensors_dtype.h"
#include "io/safetensors_header.h"
#include "io/sorted_places.h"

namespace qkv {
namespace {

const SafetensorsDtype& dtype_named(std::string_view name) {
  for (const SafetensorsDtype& known : safetensors_dtypes) {
    if (name == known.name) return known;
  }
  refuse("its dtype ", Quoted{name}, " is none that the format names");
}

class TextParser : private JsonReader {
 public:
  using JsonReader::JsonReader;

  SafetensorsHeader parse(std::size_t data_begin, std::uint64_t data_bytes) {
    // The format wants the brace to be the first byte.
    if (!rest().starts_with('{')) fail("{");
    object([&](std::string& key) { key == "__metadata__" ? parse_metadata() : parse_tensor(key); });
    skip_blanks();
    if (!rest().empty()) fail("nothing after the last brace");
    put_in_file_order();
    require_contiguous(data_bytes);
    for (StoredTensor& tensor : header_.tensors) tensor.offset += static_cast<std::int64_t>(data_begin);
    index_names();
    return std::move(header_);
  }

 private:
  void parse_metadata() {
    if (std::exchange(has_metadata_, true)) refuse("its key '__metadata__' comes twice");
    object([&](std::string& key) {
      const auto [place, is_new] = header_.metadata.try_emplace(std::move(key));
      if (!is_new) refuse("the key ", Quoted{place->first}, " of its metadata comes twice");
      place->second = string();
    });
  }

  void parse_tensor(std::string& name) {
    StoredTensor& tensor = header_.tensors.emplace_back();
    try {
      parse_into(tensor);
    } catch (const FileError& error) {
      refuse("tensor ", Quoted{name}, ": ", error.what());
    }
    tensor.name = std::move(name);
  }

  // Offsets are counted from the end of the text for now.
  void parse_into(StoredTensor& tensor) {
    const SafetensorsDtype* dtype = nullptr;
    std::int64_t end = 0;
    bool seen[std::size(keys)] = {};
    object([&](std::string& given) {
      const auto key = static_cast<std::size_t>(std::find(std::begin(keys), std::end(keys), given) - keys);
      if (key == std::size(keys)) refuse("its key ", Quoted{given}, " is unknown");
      if (std::exchange(seen[key], true)) refuse("its key '", given, "' comes twice");
      if (key == 0) {
        dtype = &dtype_named(string());
      } else if (key == 1) {
        array([&] { tensor.shape.push_back(whole_number("extent")); });
      } else {
        require("[");
        tensor.offset = whole_number("offset");
        require(",");
        end = whole_number("offset");
        require("]");
      }
    });
    for (std::size_t key = 0; key < std::size(keys); ++key) {
      if (!seen[key]) refuse("it lacks the key '", keys[key], "'");
    }
    if (tensor.offset > end) refuse("its data_offsets ", tensor.offset, " and ", end, " run backwards");

    tensor.format_dtype = dtype->name;
    tensor.dtype = dtype->dtype;
    const DenseSize size = dense_size(tensor.shape, dtype->bits);
    tensor.elements = size.elements;
    tensor.bytes = size.bytes;
    if (end - tensor.offset != size.bytes) {
      refuse(dtype->name, " of shape ", tensor.shape_text(), " takes ", size.bytes, " bytes, its data_offsets are ",
             end - tensor.offset, " apart");
    }
  }

  // By their elements; a tensor without any comes before the one that begins at the same place.
  void put_in_file_order() {
    std::vector<StoredTensor>& given = header_.tensors;
    const std::vector<std::size_t> order = sorted_places(given.size(), [&](std::size_t a, std::size_t b) {
      return given[a].offset != given[b].offset ? given[a].offset < given[b].offset : given[a].bytes < given[b].bytes;
    });
    std::vector<StoredTensor> ordered;
    ordered.reserve(given.size());
    for (const std::size_t place : order) ordered.push_back(std::move(given[place]));
    given.swap(ordered);
  }

  // Every byte after the text belongs to exactly one tensor.
  void require_contiguous(std::uint64_t data_bytes) const {
    std::int64_t end = 0;
    for (const StoredTensor& tensor : header_.tensors) {
      if (tensor.offset != end) {
        refuse("tensor ", Quoted{tensor.name}, ": it begins at byte ", tensor.offset, " of the elements, and ", end,
               " are taken: ", tensor.offset < end ? "tensors overlap" : "there is a hole");
      }
      end += tensor.bytes;
    }
    if (static_cast<std::uint64_t>(end) != data_bytes) {
      refuse(static_cast<std::uint64_t>(end) > data_bytes ? "it is truncated" : "it is too long", ": its tensors take ",
             end, " bytes, ", data_bytes, " follow the header");
    }
  }

  void index_names() {
    const std::vector<StoredTensor>& tensors = header_.tensors;
    header_.by_name =
        sorted_places(tensors.size(), [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
    for (std::size_t i = 1; i < tensors.size(); ++i) {
      const std::string& name = tensors[header_.by_name[i]].name;
      if (name == tensors[header_.by_name[i - 1]].name) refuse("tensor ", Quoted{name}, ": its name comes twice");
    }
  }

  static constexpr std::string_view keys[] = {"dtype", "shape", "data_offsets"};
  SafetensorsHeader header_;
  bool has_metadata_ = false;
};

// Throws unless a View can have these elements and this shape.
Dtype require_viewable(const StoredTensor& tensor) {
  if (!tensor.dtype) {
    throw DtypeError(
        message("its elements are ", tensor.format_dtype, "; qkv has BOOL, I32, I64, F16, BF16, F32 and F64"));
  }
  if (tensor.shape.size() > static_cast<std::size_t>(Shape::max_rank)) {
    refuse("its rank ", tensor.shape.size(), " is more than ", Shape::max_rank);
  }
  return *tensor.dtype;
}

}  // namespace

const StoredTensor* SafetensorsHeader::find(std::string_view name) const {
  const auto place = std::lower_bound(by_name.begin(), by_name.end(), name,
                                      [&](std::size_t i, std::string_view wanted) { return tensors[i].name < wanted; });
  return place != by_name.end() && tensors[*place].name == name ? &tensors[*place] : nullptr;
}

std::size_t safetensors_text_length(std::span<const std::byte> first_bytes, std::uint64_t file_bytes) {
  if (first_bytes.size() < safetensors_start) {
    refuse("it is no safetensors file: it has ", file_bytes, " bytes, and the length of a header takes ",
           safetensors_start);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), sizeof length);
  if (length > safetensors_text_limit) {
    refuse("it is no safetensors file: its first bytes claim a header of ", length, " bytes, and the format allows ",
           safetensors_text_limit);
  }
  if (length > file_bytes - safetensors_start) {
    refuse("it is truncated or no safetensors file: its first bytes claim a header of ", length, " bytes, and ",
           file_bytes - safetensors_start, " follow");
  }
  return static_cast<std::size_t>(length);
}

SafetensorsHeader parse_safetensors_text(std::string_view text, std::uint64_t file_bytes) {
  const std::size_t data_begin = safetensors_start + text.size();
  return TextParser(text).parse(data_begin, file_bytes - data_begin);
}

View stored_view(const StoredTensor& tensor, const std::byte* file) {
  const Dtype dtype = require_viewable(tensor);
  if (!tensor.is_aligned()) {
    refuse("its elements begin at byte ", tensor.offset, " of the file, no multiple of their size of ", size_of(dtype),
           ": read() can copy them, view() cannot show them");
  }
  const View view(file + tensor.offset, dtype, Shape(tensor.shape));
  if (dtype == Dtype::boolean) require_booleans(view);
  return view;
}

Tensor stored_copy(const StoredTensor& tensor, const std::byte* file) {
  const Dtype dtype = require_viewable(tensor);  // before a Shape is made of what may be no Shape
  Tensor copy = Tensor::uninitialized(Shape(tensor.shape), dtype);
  if (tensor.bytes > 0) std::memcpy(copy.view().data(), file + tensor.offset, static_cast<std::size_t>(tensor.bytes));
  if (dtype == Dtype::boolean) require_booleans(copy);
  return copy;
}

}  // namespace qkv
