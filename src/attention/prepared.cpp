// attention/prepared.cpp: keys that are made ready once.
#include <qkv/prepared.h>

#include <memory>

#include <qkv/error.h>

#include "attention/key_form.h"
#include "attention/problem.h"
#include "attention/visible.h"
#include "base/message.h"
#include "base/parallel.h"

namespace qkv {

std::int64_t Prepared::bytes() const { return form_->key_bytes(); }

Prepared prepare(View k, View v, const Score& score, View valid_lens) {
  constexpr const char* operation = "prepare";
  const auto shapes = [&] { return message("k ", k.shape().text(), ", v ", v.shape().text()); };
  if (k.rank() < 2 || k.rank() > 4 || v.rank() != k.rank()) {
    throw ShapeError(message(operation, ": k and v must have the same rank, 2, 3 or 4: ", shapes()));
  }
  const Dtype compute = compute_dtype({{"k", k.dtype()}, {"v", v.dtype()}}, operation);
  const View keys = rank4(k), values = rank4(v);
  const std::int64_t B = keys.extent(0), Hk = keys.extent(1), Tk = keys.extent(2);
  for (int axis = 0; axis < 3; ++axis) {
    if (keys.extent(axis) != values.extent(axis)) {
      throw ShapeError(message(operation, ": k and v must have the same B, Hk and Tk: ", shapes()));
    }
  }
  VisibleRuns runs = all_visible(B, Hk, Tk);
  if (valid_lens) {
    if (valid_lens.rank() != 1 || valid_lens.extent(0) != B) {
      throw ShapeError(message(operation, ": valid_lens of shape ", valid_lens.shape().text(),
                               " must be [B] with B = ", B, ": ", shapes()));
    }
    const ResolvedMask mask(lengths(valid_lens), {B, 1, 1, Tk}, operation);
    for (std::int64_t i = 0; i < B * Hk; ++i) {
      const KeyRange range = mask.range(i / Hk, 0);
      runs[static_cast<std::size_t>(i)].assign(range.last > 0 ? 1 : 0, range);
    }
  }
  Prepared prepared;
  prepared.keys_ = k;
  prepared.values_ = v;
  prepared.score_ = score;
  prepared.form_ = std::make_shared<const KeyForm>(make_key_form(
      keys, score, compute, runs, resolve_threads(0, operation), {operation, Hk, keys.extent(3), {}, shapes}));
  return prepared;
}

}  // namespace qkv
