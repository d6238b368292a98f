// ops/embedding.cpp: rows of a table, looked up.
#include <qkv/ops.h>

#include <cstring>

#include <qkv/error.h>

#include "base/blocks.h"
#include "base/message.h"
#include "ops/check.h"
#include "tensor/elements.h"

namespace qkv {

Variable embedding(const Variable& table, View ids) {
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
                [rows = std::move(rows).reshaped(Shape{count}), width](Backward& back) {
                  const View dy = back.upstream();
                  back.add_rows(0, rows, View(dy.data(), dy.dtype(), Shape{rows.elements(), width}));
                });
}

}  // namespace qkv
