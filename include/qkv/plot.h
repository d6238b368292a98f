// qkv/plot.h: pictures of weights, and tables, as text.
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

struct BarsOptions {
  std::string title = {};
  std::vector<std::string> rows = {};     // labels, one per row, or none
  std::vector<std::string> columns = {};  // labels, one per column, or none
  bool color = true;                      // 24-bit colour escapes; false: the terminal's own colour
  double high = 1;                        // what a full bar means; > 0
  int width = 10;                         // of a full bar, in columns of the terminal: 1 to 200
};

// A matrix as horizontal bars for a terminal, a number of two decimals behind each: one row of text per row, ending in
// a newline. A bar begins at 0; what is beyond its ends is drawn as its ends. NaN is drawn as "?".
//   matrix  [rows, columns], float32 or float64. Throws ShapeError, DtypeError and OptionError.
QKV_API std::string bars_text(View matrix, const BarsOptions& options = {});

struct TableColumn {
  std::string title;
  bool right = false;  // numbers stand to the right
};

// A table for a terminal: the titles, then a line a row, columns two spaces apart. What would upset the terminal
// (control characters, invalid UTF-8) is drawn as "�", and cells end after 200 columns of the terminal with an
// ellipsis. A row has at most as many cells as there are columns.
QKV_API std::string table_text(const std::vector<TableColumn>& columns,
                               const std::vector<std::vector<std::string>>& rows);

}  // namespace qkv
