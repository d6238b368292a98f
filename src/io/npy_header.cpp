// io/npy_header.cpp: the first bytes of a .npy file, read strictly.
#include "io/npy_header.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include <qkv/error.h>

#include "base/message.h"
#include "base/printable.h"
#include "io/dense_size.h"
#include "io/refuse.h"
#include "io/scanner.h"

namespace qkv {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct NamedDtype {
  std::string_view descr;
  Dtype dtype;
};
constexpr NamedDtype known_dtypes[] = {{"|b1", Dtype::boolean}, {"<i4", Dtype::int32},   {"<i8", Dtype::int64},
                                       {"<f2", Dtype::float16}, {"<f4", Dtype::float32}, {"<f8", Dtype::float64}};

Dtype dtype_named(std::string_view descr) {
  for (const NamedDtype& known : known_dtypes) {
    if (descr == known.descr) return known.dtype;
  }
  if (descr.starts_with('>')) {
    refuse("its elements are big endian (", printable(descr, 40), "); only little endian is read");
  }
  if (descr.find('O') != std::string_view::npos) {
    refuse("it holds Python objects (", printable(descr, 40), "), which are never read");
  }
  refuse("its dtype ", printable(descr, 40), " is not read; only bool, int32, int64, float16, float32 and float64 are");
}

// Python's syntax, but only as much of it as arrays need.
class TextParser : private Scanner {
 public:
  explicit TextParser(std::string_view text) : Scanner(text, " ") {}

  NpyHeader parse() {
    std::optional<Dtype> dtype;
    std::optional<bool> fortran_order;
    std::optional<Shape> shape;
    require("{");
    while (!accept("}")) {
      const std::string_view key = string();
      require(":");
      if (key == "descr") {
        set_once(dtype, parse_descr(), key);
      } else if (key == "fortran_order") {
        set_once(fortran_order, parse_bool(), key);
      } else if (key == "shape") {
        set_once(shape, parse_shape(), key);
      } else {
        refuse("its header has an unknown key ", printable(key, 40));
      }
      if (!accept(",")) {
        require("}");
        break;
      }
    }
    require_padding();
    return {required(dtype, "descr"), required(fortran_order, "fortran_order"), required(shape, "shape")};
  }

 private:
  template <class T>
  static void set_once(std::optional<T>& target, T value, std::string_view key) {
    if (target) refuse("its header has the key '", key, "' twice");
    target = value;
  }
  template <class T>
  static T required(const std::optional<T>& value, std::string_view key) {
    if (!value) refuse("its header lacks the key '", key, "'");
    return *value;
  }

  // Escapes are not undone: no key and no dtype has any.
  std::string_view string() {
    skip_blanks();
    const std::string_view text = rest();
    if (!text.starts_with('\'') && !text.starts_with('"')) fail("a string");
    const std::size_t end = text.find(text.front(), 1);
    if (end == std::string_view::npos) fail("a string that ends");
    skip(end + 1);
    return text.substr(1, end - 1);
  }

  Dtype parse_descr() {
    if (accept("[")) refuse("its elements are of a structured type, which is not read");
    return dtype_named(string());
  }

  bool parse_bool() {
    if (accept("True")) return true;
    if (!accept("False")) fail("True or False");
    return false;
  }

  Shape parse_shape() {
    std::vector<std::int64_t> extents;
    require("(");
    while (!accept(")")) {
      extents.push_back(whole_number("extent"));
      if (extents.size() > static_cast<std::size_t>(Shape::max_rank)) {
        refuse("its rank is more than ", Shape::max_rank);
      }
      if (!accept(",")) {
        // Without its comma (3) is a number to Python, not a shape.
        if (extents.size() == 1) fail(",");
        require(")");
        break;
      }
    }
    return Shape(extents);
  }

  void require_padding() {
    skip_blanks();
    if (rest() != "\n") fail("spaces and one newline");
  }
};

}  // namespace

NpyStart parse_npy_start(std::span<const std::byte> first_bytes) {
  const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(first_bytes[i]); };
  if (first_bytes.size() < magic.size() || std::memcmp(first_bytes.data(), magic.data(), magic.size()) != 0) {
    refuse("it is not a .npy file (it does not begin with \\x93NUMPY)");
  }
  if (first_bytes.size() < magic.size() + 2) refuse("it is truncated in its header");
  const std::size_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    refuse("its format version ", major, ".", minor, " is unknown; 1.0, 2.0 and 3.0 are read");
  }
  NpyStart start;
  start.text_begin = major == 1 ? 10 : 12;
  if (first_bytes.size() < start.text_begin) refuse("it is truncated in its header");
  for (std::size_t i = start.text_begin; i-- > 8;) start.text_length = start.text_length << 8 | byte(i);
  if (start.text_length > npy_text_limit) {
    refuse("its header claims ", start.text_length, " bytes; more than ", npy_text_limit, " are not read");
  }
  return start;
}

NpyHeader parse_npy_text(std::string_view text) { return TextParser(text).parse(); }

std::size_t npy_data_bytes(const NpyHeader& header, std::uint64_t bytes_after_header) {
  const auto bytes = static_cast<std::uint64_t>(
      dense_size({header.shape.begin(), header.shape.end()}, static_cast<int>(8 * size_of(header.dtype))).bytes);
  if (bytes_after_header < bytes) {
    refuse("it is truncated: ", name_of(header.dtype), " of shape ", header.shape.text(), " takes ", bytes, " bytes, ",
           bytes_after_header, " follow the header");
  }
  if (bytes_after_header > bytes) {
    refuse("it has ", bytes_after_header - bytes, " bytes too many: ", name_of(header.dtype), " of shape ",
           header.shape.text(), " takes ", bytes, " bytes");
  }
  return static_cast<std::size_t>(bytes);
}

std::string npy_header_of(Dtype dtype, const Shape& shape) {
  const auto known = std::find_if(std::begin(known_dtypes), std::end(known_dtypes),
                                  [&](const NamedDtype& named) { return named.dtype == dtype; });
  if (known == std::end(known_dtypes)) {
    throw DtypeError(message("write_npy: ", name_of(dtype), " has no npy type; convert it, for instance to float32"));
  }
  std::string text = message("{'descr': '", known->descr, "', 'fortran_order': False, 'shape': (");
  for (int axis = 0; axis < shape.rank(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  text += shape.rank() == 1 ? ",), }" : "), }";
  constexpr std::size_t fixed = 10, unit = 64;
  const std::size_t length = (fixed + text.size() + 1 + unit - 1) / unit * unit - fixed;
  text.resize(length - 1, ' ');
  std::string header(magic);
  header += {'\x01', '\x00', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return header + text + "\n";
}

}  // namespace qkv
