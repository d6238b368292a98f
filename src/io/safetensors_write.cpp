// io/safetensors_write.cpp: safetensors files as the format's own writer makes them.
#include <algorithm>
#include <iterator>
#include <utility>

#include <qkv/error.h>

#include "base/message.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "io/elements.h"
#include "io/file_writer.h"
#include "io/json.h"
#include "io/safetensors_dtype.h"
#include "io/safetensors_header.h"
#include "io/sorted_places.h"

namespace qkv {
namespace {

const SafetensorsDtype* format_of(Dtype dtype) {
  return std::find_if(std::begin(safetensors_dtypes), std::end(safetensors_dtypes),
                      [&](const SafetensorsDtype& known) { return known.dtype == dtype; });
}

void require_utf8(std::string_view text, const char* what) {
  if (!is_utf8(text)) {
    throw OptionError(message("write_safetensors: the ", what, " ", Quoted{text}, " is not UTF-8"));
  }
}

void require_writable(const NamedView& tensor) {
  require_utf8(tensor.name, "name");
  if (tensor.name == "__metadata__") {
    throw OptionError("write_safetensors: no tensor can be called '__metadata__': the format keeps that name");
  }
  if (!tensor.value) {
    throw ShapeError(message("write_safetensors: there is no array called ", Quoted{tensor.name}));
  }
}

void require_different_names(std::span<const NamedView> tensors) {
  const std::vector<std::size_t> order =
      sorted_places(tensors.size(), [&](std::size_t a, std::size_t b) { return tensors[a].name < tensors[b].name; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::string& name = tensors[order[i]].name;
    if (name == tensors[order[i - 1]].name) {
      throw OptionError(message("write_safetensors: the name ", Quoted{name}, " comes twice"));
    }
  }
}

// Appends "key": to the members of an object, the first of which opens it.
void begin_member(std::string& text, std::string_view key, bool first) {
  text += first ? '{' : ',';
  append_json_string(text, key);
  text += ':';
}

void append_metadata(std::string& text, const std::map<std::string, std::string>& metadata) {
  bool first = true;
  for (const auto& [key, value] : metadata) {
    require_utf8(key, "metadata's key");
    require_utf8(value, "metadata");
    begin_member(text, key, std::exchange(first, false));
    append_json_string(text, value);
  }
  text += '}';
}

void append_tensor(std::string& text, const View& view, std::int64_t begin, std::int64_t end) {
  text += message("{\"dtype\":\"", format_of(view.dtype())->name, "\",\"shape\":[");
  for (int axis = 0; axis < view.rank(); ++axis) text += message(axis > 0 ? "," : "", view.extent(axis));
  text += message("],\"data_offsets\":[", begin, ",", end, "]}");
}

}  // namespace

SafetensorsStart safetensors_start_of(std::span<const NamedView> tensors,
                                      const std::map<std::string, std::string>& metadata) {
  for (const NamedView& tensor : tensors) require_writable(tensor);
  require_different_names(tensors);
  SafetensorsStart start;
  start.order = sorted_places(tensors.size(), [&](std::size_t a, std::size_t b) {
    const SafetensorsDtype* format_a = format_of(tensors[a].value.dtype());
    const SafetensorsDtype* format_b = format_of(tensors[b].value.dtype());
    return format_a != format_b ? format_a > format_b : tensors[a].name < tensors[b].name;
  });

  std::string text;
  if (!metadata.empty()) {
    begin_member(text, "__metadata__", true);
    append_metadata(text, metadata);
  }
  std::int64_t offset = 0;
  for (const std::size_t place : start.order) {
    const View& view = tensors[place].value;
    const std::int64_t begin = offset;
    offset += bytes_of(view);
    begin_member(text, tensors[place].name, text.empty());
    append_tensor(text, view, begin, offset);
  }
  text += text.empty() ? "{}" : "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');

  const std::uint64_t length = text.size();
  start.bytes.assign(reinterpret_cast<const char*>(&length), sizeof length);
  start.bytes += text;
  return start;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedView> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const SafetensorsStart start = safetensors_start_of(tensors, metadata);
  if (start.bytes.size() - safetensors_start > safetensors_text_limit) {
    throw FileError(message("cannot write ", printable(path.native()), ": its header would have ",
                            start.bytes.size() - safetensors_start, " bytes, and the format allows ",
                            safetensors_text_limit));
  }
  FileWriter file(path);
  file.write(std::as_bytes(std::span(start.bytes)));
  for (const std::size_t place : start.order) write_elements(file, tensors[place].value);
  file.commit();
}

}  // namespace qkv
