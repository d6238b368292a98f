// io/safetensors.cpp: safetensors files, mapped.
#include <algorithm>
#include <cmath>
#include <utility>

#include <qkv/error.h>
#include <qkv/io.h>

#include "base/function_ref.h"
#include "base/message.h"
#include "io/file_reader.h"
#include "io/near_name.h"
#include "io/safetensors_header.h"
#include "tensor/extents.h"

namespace qkv {
namespace {

// A number that is too large for the dtype it is converted to would become infinite without a word.
void require_fit(const View& stored, const Tensor& converted) {
  const Dtype from = stored.dtype(), to = converted.dtype();
  const bool widens =
      from == Dtype::float16 || (from == Dtype::bfloat16 && to == Dtype::float32) || to == Dtype::float64;
  if (!is_floating(from) || widens) return;
  const Tensor narrow = Tensor::copy_of(converted, Dtype::float32);
  const auto values = narrow.values<float>();
  const auto is_infinite = [](float value) { return std::isinf(value); };
  if (std::none_of(values.begin(), values.end(), is_infinite)) return;
  const Tensor wide = Tensor::copy_of(stored, Dtype::float64);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = wide.values<double>()[i];
    if (is_infinite(values[i]) && std::isfinite(value)) {
      throw DtypeError(message("the element ", value, " does not fit in ", name_of(to)));
    }
  }
}

}  // namespace

bool StoredTensor::is_aligned() const { return dtype && offset % static_cast<std::int64_t>(size_of(*dtype)) == 0; }

std::string StoredTensor::shape_text() const { return text_of_extents(shape); }

struct SafetensorsFile::Inside {
  std::filesystem::path path;
  SafetensorsHeader header;
  std::shared_ptr<const std::byte> memory;

  const StoredTensor& tensor(std::string_view name) const {
    const StoredTensor* found = header.find(name);
    if (found == nullptr) throw FileError(cannot_read(path, missing(name)));
    return *found;
  }

  // Calls `body` with the tensor of this name; what it throws gets the path and the name.
  void with(std::string_view name, FunctionRef<void(const StoredTensor&)> body) const {
    const StoredTensor& found = tensor(name);
    try {
      body(found);
    } catch (const FileError& error) {
      throw FileError(about(name, error));
    } catch (const DtypeError& error) {
      throw DtypeError(about(name, error));
    }
  }

  std::string about(std::string_view name, const Error& error) const {
    return cannot_read(path, message("tensor ", Quoted{name}, ": ", error.what()));
  }

  std::string missing(std::string_view name) const {
    std::string text = message("it has no tensor ", Quoted{name});
    const std::string_view near = near_name(name, header.tensors);
    if (!near.empty()) text += message("; the nearest name is ", Quoted{near});
    return text;
  }
};

// The header is read rather than looked at in the mapping: so it cannot change between two looks.
SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : inside_(naming_file(path, [&] {
        const FileReader file(path);
        std::vector<std::byte> first(std::min<std::uint64_t>(file.bytes(), safetensors_start));
        file.read(0, first);
        std::string text(safetensors_text_length(first, file.bytes()), '\0');
        file.read(safetensors_start, std::as_writable_bytes(std::span(text)));
        auto inside = std::make_shared<Inside>();
        inside->path = path;
        inside->header = parse_safetensors_text(text, file.bytes());
        inside->memory = file.map();
        return inside;
      })) {}

const std::filesystem::path& SafetensorsFile::path() const { return inside_->path; }
const std::vector<StoredTensor>& SafetensorsFile::tensors() const { return inside_->header.tensors; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return inside_->header.metadata; }

bool SafetensorsFile::contains(std::string_view name) const { return inside_->header.find(name) != nullptr; }

const StoredTensor& SafetensorsFile::tensor(std::string_view name) const { return inside_->tensor(name); }

View SafetensorsFile::view(std::string_view name) const {
  View view;
  inside_->with(name, [&](const StoredTensor& tensor) { view = stored_view(tensor, inside_->memory.get()); });
  return view;
}

Tensor SafetensorsFile::read(std::string_view name) const {
  Tensor copy;
  inside_->with(name, [&](const StoredTensor& tensor) { copy = stored_copy(tensor, inside_->memory.get()); });
  return copy;
}

Tensor SafetensorsFile::read(std::string_view name, Dtype as) const {
  Tensor copy;
  inside_->with(name, [&](const StoredTensor& tensor) {
    const std::byte* memory = inside_->memory.get();
    if (tensor.dtype == as || !tensor.is_aligned()) copy = stored_copy(tensor, memory);
    if (tensor.dtype == as) return;
    const View stored = copy ? View(copy) : stored_view(tensor, memory);
    Tensor converted = Tensor::copy_of(stored, as);
    require_fit(stored, converted);
    copy = std::move(converted);
  });
  return copy;
}

}  // namespace qkv
