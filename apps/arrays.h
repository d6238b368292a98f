// apps/arrays.h: arrays from files, of either kind, and arrays for people to read.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <qkv/tensor.h>

#include "text_array.h"

namespace qkv::apps {

// A .npy file as it is, whatever its elements; or a text file, with elements as asked for. Throws FileError.
Tensor read_array(const std::filesystem::path& path, Elements elements = Elements::numbers,
                  Vector vector = Vector::none);

// So many significant digits; "nan" where it is none.
std::string text_of_number(double number, int digits = 6);

// Text that read_text_array understands: six significant digits, columns below each other. The matrices of an array of
// higher rank get a heading each: "# weights[0, 1]".
std::string text_of(View array, std::string_view name);

}  // namespace qkv::apps
