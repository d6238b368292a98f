// ops/views.cpp: the same elements, seen otherwise. What they return sees the memory of what they are given.
#include <qkv/error.h>
#include <qkv/ops.h>

#include "base/message.h"
#include "ops/check.h"
#include "ops/lines.h"

namespace qkv {

Variable reshape(const Variable& x, const Shape& shape) {
  common_dtype("reshape", {&x});
  if (shape.elements() != x.shape().elements()) {
    refuse_shapes("reshape", "the counts of elements must be equal", {{"x", x.shape()}, {"the new shape", shape}});
  }
  const Variable memory = dense(x);
  const Variable y = memory.seen_as(View(memory.value().data(), x.dtype(), shape));
  // Backward: dx = dy under the old shape. Keeps nothing.
  return record("reshape", y, {x},
                [shape = x.shape()](Backward& back) { back.add(0, back.take_upstream().reshaped(shape)); });
}

Variable transpose(const Variable& x, int axis_a, int axis_b) {
  common_dtype("transpose", {&x});
  const int a = resolve_axis("transpose", axis_a, x.shape()), b = resolve_axis("transpose", axis_b, x.shape());
  // Backward: dx = dy transposed. Keeps nothing.
  return record("transpose", x.seen_as(x.value().swapped(a, b)), {x},
                [a, b](Backward& back) { back.add(0, Tensor::copy_of(back.upstream().swapped(a, b))); });
}

Variable slice(const Variable& x, int axis, std::int64_t first, std::int64_t count) {
  common_dtype("slice", {&x});
  const int along = resolve_axis("slice", axis, x.shape());
  if (first < 0 || count < 0 || first > x.extent(along) || count > x.extent(along) - first) {
    throw ShapeError(message("slice: ", count, " elements from ", first, " on are outside axis ", axis, " of shape ",
                             x.shape().text()));
  }
  // Backward: dx is dy in the slice and 0 elsewhere. Keeps nothing.
  return record("slice", x.seen_as(x.value().slice(along, first, count)), {x},
                [shape = x.shape(), along, first, count](Backward& back) {
                  Tensor dx(shape, back.upstream().dtype());
                  copy_into(back.upstream(), dx.view().slice(along, first, count));
                  back.add(0, std::move(dx));
                });
}

std::vector<Variable> split(const Variable& x, int axis, const std::vector<std::int64_t>& counts) {
  common_dtype("split", {&x});
  const int along = resolve_axis("split", axis, x.shape());
  std::int64_t total = 0;
  std::vector<Variable> parts;
  for (const std::int64_t count : counts) {
    if (count < 0 || count > x.extent(along) - total) {
      total = -1;
      break;
    }
    parts.push_back(x.seen_as(x.value().slice(along, total, count)));
    total += count;
  }
  if (total != x.extent(along)) {
    std::string text;
    for (const std::int64_t count : counts) text += (text.empty() ? "" : " + ") + std::to_string(count);
    throw ShapeError(
        message("split: the counts ", text, " do not make up axis ", axis, " of shape ", x.shape().text()));
  }
  // Backward: dx is the parts' gradients side by side, 0 for a part that has none. Keeps nothing.
  return record("split", parts, {x}, [shape = x.shape(), dtype = x.dtype(), along, counts](Backward& back) {
    Tensor dx(shape, dtype);
    std::int64_t first = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (const View part = back.upstream(static_cast<int>(i))) {
        copy_into(part, dx.view().slice(along, first, counts[i]));
      }
      first += counts[i];
    }
    back.add(0, std::move(dx));
  });
}

Variable concat(const std::vector<Variable>& parts, int axis) {
  if (parts.empty()) throw ShapeError("concat: there must be at least one part");
  common_dtype("concat", {&parts[0]});
  const int along = resolve_axis("concat", axis, parts[0].shape());
  std::vector<std::int64_t> extents(parts[0].shape().begin(), parts[0].shape().end());
  std::vector<std::int64_t> counts;
  std::int64_t total = 0;
  for (const Variable& part : parts) {
    common_dtype("concat", {&parts[0], &part});
    common_dtype("concat", {&part});
    bool fits = part.rank() == parts[0].rank();
    for (int i = 0; fits && i < part.rank(); ++i) fits = i == along || part.extent(i) == parts[0].extent(i);
    if (!fits) {
      refuse_shapes("concat", "all axes but the one of the concatenation must be equal",
                    {{"the first part", parts[0].shape()}, {"another", part.shape()}});
    }
    counts.push_back(part.extent(along));
    total += counts.back();
  }
  extents[static_cast<std::size_t>(along)] = total;
  Tensor y = Tensor::uninitialized(Shape(extents), parts[0].dtype());
  std::int64_t first = 0;
  for (const Variable& part : parts) {
    copy_into(part.value(), y.view().slice(along, first, part.extent(along)));
    first += part.extent(along);
  }
  // Backward: each part gets its slice of dy. Keeps nothing.
  return record("concat", Variable(std::move(y)), parts, [along, counts](Backward& back) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const int input = static_cast<int>(i);
      if (back.needs(input)) back.add(input, Tensor::copy_of(back.upstream().slice(along, start, counts[i])));
      start += counts[i];
    }
  });
}

}  // namespace qkv
