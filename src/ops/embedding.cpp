// ops/embedding.cpp: rows of a table, looked up.
#include <qkv/ops.h>

#include <cstring>
#include <vector>

#include <qkv/error.h>

#include "base/blocks.h"
#include "base/message.h"
#include "ops/check.h"
#include "tensor/elements.h"

namespace qkv {
namespace {

// Adds values[i] to row rows[i] of the input, but not to the row `fixed`.
void add_other_rows(Backward& back, const Tensor& rows, const View& values, std::int64_t fixed) {
  const auto width = static_cast<std::size_t>(values.extent(1)) * size_of(values.dtype());
  std::vector<std::int64_t> others;
  std::vector<std::size_t> from;
  std::size_t place = 0;
  for (const std::int64_t row : rows.values<std::int64_t>()) {
    if (row != fixed) {
      others.push_back(row);
      from.push_back(place);
    }
    ++place;
  }
  const Shape shape{static_cast<std::int64_t>(others.size())};
  Tensor kept = Tensor::uninitialized(Shape{shape[0], values.extent(1)}, values.dtype());
  char* to = static_cast<char*>(kept.view().data());
  for (std::size_t i = 0; width > 0 && i < from.size(); ++i) {
    std::memcpy(to + i * width, values.as<char>() + from[i] * width, width);
  }
  back.add_rows(0, View(others, shape), kept);
}

}  // namespace

Variable embedding(const Variable& table, View ids, std::optional<std::int64_t> fixed) {
  common_dtype("embedding", {&table});
  require_integers(ids, "ids", "embedding");
  if (table.rank() != 2) refuse_shapes("embedding", "the table must be [V, D]", {{"table", table.shape()}});
  Tensor rows = Tensor::copy_of(ids, Dtype::int64);
  const std::int64_t count = rows.elements(), width = table.extent(1);
  const auto list = rows.values<std::int64_t>();
  for (const std::int64_t id : list) {
    if (id < 0 || id >= table.extent(0)) {
      throw ShapeError(message("embedding: there is no row ", id, " in a table ", table.shape().text()));
    }
  }
  if (fixed && (*fixed < 0 || *fixed >= table.extent(0))) {
    throw ShapeError(message("embedding: there is no row ", *fixed, " to be fixed in a table ", table.shape().text()));
  }
  const Variable whole = dense(table);
  Tensor y = Tensor::uninitialized(with_last(ids.shape(), width), table.dtype());
  const auto bytes = static_cast<std::size_t>(width) * size_of(table.dtype());
  const char* from = whole.value().as<char>();
  char* to = static_cast<char*>(y.view().data());
  for_blocks(bytes == 0 ? 0 : count, 256, [&](std::int64_t first, std::int64_t block) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(first + block); ++i) {
      std::memcpy(to + i * bytes, from + static_cast<std::size_t>(list[i]) * bytes, bytes);
    }
  });
  // Backward: row ids[i] of d table gets dy[i]; the others nothing. Keeps the ids.
  return record("embedding", Variable(std::move(y)), {table},
                [rows = std::move(rows).reshaped(Shape{count}), width, fixed](Backward& back) {
                  const View dy = back.upstream();
                  const View values(dy.data(), dy.dtype(), Shape{rows.elements(), width});
                  if (fixed) {
                    add_other_rows(back, rows, values, *fixed);
                  } else {
                    back.add_rows(0, rows, values);
                  }
                });
}

}  // namespace qkv
