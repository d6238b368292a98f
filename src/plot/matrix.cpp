// plot/matrix.cpp: what every picture of a matrix asks of it.
#include "plot/matrix.h"

#include <qkv/error.h>

#include "base/message.h"
#include "plot/terminal_text.h"

namespace qkv {
namespace {

void require_labels_of(const std::vector<std::string>& labels, View matrix, int axis, std::string_view what,
                       std::string_view operation) {
  if (!labels.empty() && labels.size() != static_cast<std::size_t>(matrix.extent(axis))) {
    throw ShapeError(message(operation, ": ", labels.size(), " labels for the ", what, " of a matrix of shape ",
                             matrix.shape().text()));
  }
}

}  // namespace

void require_matrix(View matrix, std::string_view operation) {
  if (matrix.rank() != 2) {
    throw ShapeError(message(operation, ": a matrix has rank 2, this has shape ", matrix.shape().text()));
  }
  if (matrix.dtype() != Dtype::float32 && matrix.dtype() != Dtype::float64) {
    throw DtypeError(message(operation, ": the matrix is ", name_of(matrix.dtype()), ", not float32 or float64"));
  }
}

void require_labels(View matrix, const std::vector<std::string>& rows, const std::vector<std::string>& columns,
                    std::string_view operation) {
  require_labels_of(rows, matrix, 0, "rows", operation);
  require_labels_of(columns, matrix, 1, "columns", operation);
}

double element(View matrix, std::int64_t row, std::int64_t column) {
  const std::int64_t at = row * matrix.stride(0) + column * matrix.stride(1);
  return matrix.dtype() == Dtype::float32 ? double{matrix.as<float>()[at]} : matrix.as<double>()[at];
}

std::vector<std::string> clean_labels(const std::vector<std::string>& labels) {
  std::vector<std::string> result;
  result.reserve(labels.size());
  for (const std::string& label : labels) result.push_back(clean(label, longest_label));
  return result;
}

}  // namespace qkv
