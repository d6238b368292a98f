// qkv/plot.h: pictures of weights.
#pragma once

#include <string>
#include <vector>

#include <qkv/export.h>
#include <qkv/tensor.h>

namespace qkv {

struct HeatMapOptions {
  std::string title = {};
  std::vector<std::string> rows = {};     // labels, one per row, or none
  std::vector<std::string> columns = {};  // labels, one per column, or none
  bool color = true;                      // 24-bit colour escapes; false: the shades " ░▒▓█"
  double low = 0, high = 1;               // what the lightest and the darkest shade mean
};

// A matrix as shaded blocks for a terminal, one row of text per row, ending in a newline. NaN is drawn as "?".
//   matrix  [rows, columns], float32 or float64. Throws ShapeError, DtypeError, and OptionError unless low < high, both
//   finite.
QKV_API std::string heat_map_text(View matrix, const HeatMapOptions& options = {});

}  // namespace qkv
