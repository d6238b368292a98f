// qkv/io.h: arrays in files: NumPy's .npy, one array a file, and safetensors, any number of them by name.
//
// Reading distrusts the file: nothing is allocated, mapped or handed out before the header has been parsed strictly and
// agrees with the length of the file. What is wrong with a file is a FileError with its path and the reason. Writing is
// whole or not at all: to a temporary name beside the file, synced, renamed, the directory synced.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qkv/export.h>
#include <qkv/tensor.h>

namespace qkv {

// Reads a .npy file (format 1.0 to 3.0, little endian, C or Fortran order; bool, int32, int64, float16, float32,
// float64) into a tensor of rank at most 8. No object arrays are read. Throws FileError.
QKV_API Tensor read_npy(const std::filesystem::path& path);

// Writes a .npy file. bfloat16 has no npy type and is refused with DtypeError. Throws FileError.
QKV_API void write_npy(const std::filesystem::path& path, View array);

// What a safetensors file says of one of its tensors.
struct QKV_API StoredTensor {
  std::string name;                 // UTF-8, whatever characters the file has put there
  std::string_view format_dtype;    // the elements as the format names them: "BF16"
  std::optional<Dtype> dtype;       // the same as qkv names them; nothing where it has no such elements ("U8")
  std::vector<std::int64_t> shape;  // of any rank; a View has at most 8
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  // of its first element, from the beginning of the file

  bool is_aligned() const;         // whether qkv has such elements, and they lie where their size wants them
  std::string shape_text() const;  // "[2, 8, 128, 64]"
};

// A safetensors file, open for reading and mapped into memory: its tensors are read from disk when they are looked at.
//
// All of these are refused: a header longer than the file or than 100 MB, or that is not strict JSON in UTF-8; a key
// that comes twice or is unknown; a dtype that the format does not name; tensors that overlap, leave a hole, or do not
// fill the rest of the file; a shape whose size overflows or is not that of its bytes; metadata that is not text.
//
// Copies share the mapping. All members may be called from several threads at once.
//
// The elements are the file's own memory. Replacing the file by renaming another over it, as write_safetensors does, is
// harmless, but whoever overwrites it in place changes the elements, and after truncating it, looking at an element
// that is gone ends the program with SIGBUS, in read() too. Nothing can guard against that but having read() what is
// needed before.
class QKV_API SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);  // throws FileError

  const std::filesystem::path& path() const;
  const std::vector<StoredTensor>& tensors() const;  // in the order in which their elements lie in the file
  const std::map<std::string, std::string>& metadata() const;

  bool contains(std::string_view name) const;
  // Throws FileError where there is none of that name, and says which name is nearest if one is near.
  const StoredTensor& tensor(std::string_view name) const;

  // The elements where they are, valid as long as this file or a copy of it. Throws FileError: no such name, a rank
  // over 8, elements that are not aligned (the format does not promise it; read() takes them), a bool that is neither 0
  // nor 1 (all of them are looked at). Throws DtypeError, naming the format's dtype, for elements that qkv does not
  // have.
  View view(std::string_view name) const;

  // A copy, aligned or not; as the file has it, or converted (floating to floating, integer to integer): float16 and
  // bfloat16 are widened by asking for float32. Throws what view() throws, and DtypeError where a conversion does not
  // exist or a number does not fit.
  Tensor read(std::string_view name) const;
  Tensor read(std::string_view name, Dtype as) const;

 private:
  struct Inside;
  std::shared_ptr<const Inside> inside_;
};

// An array and what it is called in a file.
struct NamedView {
  std::string name;
  View value;
};

// Writes a safetensors file of these tensors, of any strides and dtype, and of this metadata. As the format's own
// writer does it, dtypes of larger alignment come first, then names in their order, and the header is padded to a
// multiple of 8, so that all elements are aligned. Throws OptionError (a name that comes twice, is "__metadata__" or is
// not UTF-8; metadata that is not UTF-8), ShapeError (an absent view), FileError.
QKV_API void write_safetensors(const std::filesystem::path& path, std::span<const NamedView> tensors,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace qkv
