// plot/matrix.h: what every picture of a matrix asks of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <qkv/tensor.h>

namespace qkv {

// Throws ShapeError unless the rank is 2, DtypeError unless the elements are float32 or float64.
void require_matrix(View matrix, std::string_view operation);

// Throws ShapeError unless there is one label for each row or column, or none at all.
void require_labels(View matrix, const std::vector<std::string>& rows, const std::vector<std::string>& columns,
                    std::string_view operation);

double element(View matrix, std::int64_t row, std::int64_t column);

constexpr int longest_label = 16, longest_title = 200;  // columns of a terminal

std::vector<std::string> clean_labels(const std::vector<std::string>& labels);

}  // namespace qkv
