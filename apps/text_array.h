// apps/text_array.h: small arrays that people wrote as text.
//
// A line is a row; numbers are separated by commas in .csv files, tabs in .tsv files and blanks in .txt files. A blank
// line ends a matrix and begins the next, so that several of the same size are an array of rank 3. What follows a # is
// a comment.
#pragma once

#include <cstdint>
#include <filesystem>

#include <qkv/tensor.h>

namespace qkv::apps {

// What the elements are to be, and their dtype: float64, int64, boolean.
enum class Elements : std::uint8_t { numbers, whole_numbers, zeros_and_ones };

// Which matrices are meant as a vector.
enum class Vector : std::uint8_t { none, one_line, one_column, either };

bool is_text_file(const std::filesystem::path& path);  // by its ending

// Throws FileError with path, line and reason.
Tensor read_text_array(const std::filesystem::path& path, Elements elements, Vector vector);

}  // namespace qkv::apps
