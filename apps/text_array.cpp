// apps/text_array.cpp: small arrays that people wrote as text.
#include "text_array.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <qkv/error.h>

namespace qkv::apps {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view blanks = " \t\r\v\f";

// What a file holds, for a one-line message: cut, and without anything that would upset a terminal.
std::string quoted(std::string_view text) {
  constexpr std::size_t limit = 60;
  constexpr char digits[] = "0123456789abcdef";
  std::string result = "'";
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      result += c;
    } else {
      result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return result + (text.size() > limit ? "...'" : "'");
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

// Cuts the beginning of the text off, up to one of the separators, which goes too.
std::string_view cut(std::string_view& text, std::string_view separators) {
  const std::size_t end = text.find_first_of(separators);
  const std::string_view piece = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return piece;
}

std::vector<std::string_view> fields_of(std::string_view line, const fs::path& ending) {
  std::vector<std::string_view> fields;
  if (ending == ".txt") {
    while (!(line = trimmed(line)).empty()) fields.push_back(cut(line, blanks));
    return fields;
  }
  const char separator = ending == ".csv" ? ',' : '\t';
  const auto count = 1 + std::count(line.begin(), line.end(), separator);
  for (std::ptrdiff_t i = 0; i < count; ++i) fields.push_back(trimmed(cut(line, {&separator, 1})));
  return fields;
}

double number_of(std::string_view field) {
  const std::string_view digits = field.starts_with('+') ? field.substr(1) : field;
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (field.empty()) throw FileError("a number is missing");
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument || field.starts_with("+-")) {
    throw FileError(quoted(field) + " is not a number");
  }
  if (error != std::errc()) throw FileError(quoted(field) + " is beyond the range of float64");
  return number;
}

double element_of(std::string_view field, Elements elements) {
  constexpr double exact = 9007199254740992;  // 2^53: up to here float64 has every whole number
  const double number = number_of(field);
  if (elements == Elements::whole_numbers && !(number == std::floor(number) && std::abs(number) <= exact)) {
    throw FileError(quoted(field) + " is not a whole number");
  }
  if (elements == Elements::zeros_and_ones && number != 0 && number != 1) {
    throw FileError(quoted(field) + " is neither 0 nor 1");
  }
  return number;
}

// Collects rows and holds them to one size.
class Parser {
 public:
  Parser(const fs::path& ending, Elements elements) : ending_(ending), elements_(elements) {}

  void parse(std::string_view text) {
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
    for (line_ = 1; !text.empty(); ++line_) take(cut(text, "\n"));
    end_matrix();
    if (values_.empty()) throw FileError("there is no number in it");
  }

  Tensor tensor(Vector vector) const {
    const std::int64_t rows = matrix_rows_, columns = columns_;
    const bool line = rows == 1 && (vector == Vector::one_line || vector == Vector::either);
    const bool column = columns == 1 && (vector == Vector::one_column || vector == Vector::either);
    if (matrices_ > 1) return tensor_of_shape({matrices_, rows, columns});
    return line || column ? tensor_of_shape({rows * columns}) : tensor_of_shape({rows, columns});
  }

 private:
  void take(std::string_view line) {
    const std::string_view content = trimmed(line.substr(0, line.find('#')));
    if (content.empty()) {
      if (trimmed(line).empty()) end_matrix();  // a line with only a comment ends nothing
      return;
    }
    try {
      const std::vector<std::string_view> fields = fields_of(line.substr(0, line.find('#')), ending_);
      require_columns(static_cast<std::int64_t>(fields.size()));
      for (const std::string_view field : fields) values_.push_back(element_of(field, elements_));
      ++rows_;
    } catch (const FileError& error) {
      throw FileError("line " + std::to_string(line_) + ": " + error.what());
    }
  }

  void require_columns(std::int64_t count) {
    if (values_.empty()) {
      columns_ = count;
      first_line_ = line_;
    } else if (count != columns_) {
      throw FileError("the row has " + std::to_string(count) + " numbers, that of line " + std::to_string(first_line_) +
                      " has " + std::to_string(columns_));
    }
  }

  void end_matrix() {
    if (rows_ == 0) return;  // several blank lines, or some at the beginning
    if (matrices_ == 0) matrix_rows_ = rows_;
    if (rows_ != matrix_rows_) {
      throw FileError("line " + std::to_string(line_) + ": the matrix that ends here has " + std::to_string(rows_) +
                      " rows, the first one has " + std::to_string(matrix_rows_) +
                      " (a blank line begins a new matrix)");
    }
    ++matrices_;
    rows_ = 0;
  }

  template <class T>
  Tensor converted(const Shape& shape) const {
    Tensor result(shape, dtype_of<T>);
    std::transform(values_.begin(), values_.end(), result.values<T>().begin(),
                   [](double value) { return static_cast<T>(value); });
    return result;
  }

  Tensor tensor_of_shape(const Shape& shape) const {
    switch (elements_) {
      case Elements::whole_numbers:
        return converted<std::int64_t>(shape);
      case Elements::zeros_and_ones:
        return converted<bool>(shape);
      default:
        return converted<double>(shape);
    }
  }

  const fs::path ending_;
  const Elements elements_;
  std::vector<double> values_;
  std::int64_t line_ = 0, first_line_ = 0;
  std::int64_t columns_ = 0, rows_ = 0;  // of the row and the matrix that are being read
  std::int64_t matrix_rows_ = 0, matrices_ = 0;
};

std::string content_of(const fs::path& path) {
  const fs::file_status status = fs::status(path);
  if (!fs::exists(status)) throw FileError("No such file or directory");
  if (fs::is_directory(status)) throw FileError("it is a directory");
  if (!fs::is_regular_file(status)) throw FileError("it is not a regular file");  // a pipe would be waited for
  std::ifstream file(path, std::ios::binary);
  std::string content(std::istreambuf_iterator<char>(file), {});
  if (!file) throw FileError(std::generic_category().message(errno));
  return content;
}

}  // namespace

bool is_text_file(const fs::path& path) {
  const fs::path ending = path.extension();
  return ending == ".csv" || ending == ".tsv" || ending == ".txt";
}

Tensor read_text_array(const fs::path& path, Elements elements, Vector vector) {
  try {
    Parser parser(path.extension(), elements);
    parser.parse(content_of(path));
    return parser.tensor(vector);
  } catch (const std::runtime_error& error) {  // FileError, and what std::filesystem throws
    throw FileError("cannot read '" + path.string() + "': " + error.what());
  }
}

}  // namespace qkv::apps
