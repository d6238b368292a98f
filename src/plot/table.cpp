// plot/table.cpp: tables for a terminal.
#include <algorithm>
#include <cassert>

#include <qkv/plot.h>

#include "plot/terminal_text.h"

namespace qkv {
namespace {

constexpr int widest_cell = 200;

using Cells = std::vector<std::string>;

void append_line(std::string& text, const Cells& cells, const std::vector<TableColumn>& columns,
                 const std::vector<int>& widths) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += "  ";
    line += padded(clean(cells[i], widest_cell), widths[i], columns[i].right ? 1 : 0);
  }
  line.resize(line.find_last_not_of(' ') + 1);
  text += line + "\n";
}

}  // namespace

std::string table_text(const std::vector<TableColumn>& columns, const std::vector<Cells>& rows) {
  Cells titles;
  std::vector<int> widths;
  for (const TableColumn& column : columns) {
    titles.push_back(column.title);
    widths.push_back(columns_of(clean(column.title, widest_cell)));
  }
  for (const Cells& row : rows) {
    assert(row.size() <= columns.size() && "a row has at most as many cells as there are columns");
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], columns_of(clean(row[i], widest_cell)));
    }
  }
  std::string text;
  append_line(text, titles, columns, widths);
  for (const Cells& row : rows) append_line(text, row, columns, widths);
  return text;
}

}  // namespace qkv
