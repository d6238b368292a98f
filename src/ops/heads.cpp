// ops/heads.cpp: where heads stand in variables, and where their gradients go.
#include "ops/heads.h"

#include <cstring>

#include <qkv/error.h>

#include "base/message.h"
#include "ops/check.h"

namespace qkv {
namespace {

enum Input : int { in_q, in_k, in_v };

void check_layout(const char* op, const HeadLayout& layout) {
  if (layout.heads < 1 || layout.key_heads < 1 || layout.query_width < 0 || layout.key_width < 0 ||
      layout.value_width < 0) {
    throw OptionError(message(op, ": a layout has at least one head and widths of at least 0, not ", layout.heads,
                              " and ", layout.key_heads, " heads, ", layout.query_width, ", ", layout.key_width,
                              " and ", layout.value_width, " wide"));
  }
}

void check_width(const char* op, const Variable& variable, const char* name, std::int64_t width) {
  if (variable.rank() == 3 && variable.extent(2) == width) return;
  throw ShapeError(message(op, ": ", name, " must be [B, T, ", width, "], by the layout of its heads, and is ",
                           variable.shape().text()));
}

}  // namespace

HeadSeats key_seats_of(const char* op, const AttendVariables& x, const std::optional<HeadLayout>& layout) {
  HeadSeats seats;
  seats.k = {x.k, in_k};
  seats.v = {x.v, in_v};
  if (!layout) return seats;
  check_layout(op, *layout);
  const std::int64_t keys = layout->key_heads * layout->key_width, values = layout->key_heads * layout->value_width;
  if (!x.v) seats.v = {x.k, in_k, keys};
  seats.k.heads = seats.v.heads = layout->key_heads;
  seats.k.width = layout->key_width;
  seats.v.width = layout->value_width;
  common_dtype(op, {&x.k, &x.v});
  check_width(op, x.k, x.v ? "k" : "k, with values,", x.v ? keys : keys + values);
  if (x.v) check_width(op, x.v, "v", values);
  return seats;
}

HeadSeats seats_of(const char* op, const AttendVariables& x, const std::optional<HeadLayout>& layout) {
  if (!layout) {
    HeadSeats seats = key_seats_of(op, x, layout);
    seats.q = {x.q, in_q};
    return seats;
  }
  check_layout(op, *layout);
  common_dtype(op, {&x.q});
  const std::int64_t queries = layout->heads * layout->query_width;
  HeadSeats seats;
  if (x.k) {
    seats = key_seats_of(op, x, layout);
    check_width(op, x.q, "q", queries);
  } else {
    if (x.v) throw ShapeError(message(op, ": v is given without k"));
    const std::int64_t keys = layout->key_heads * layout->key_width;
    seats.k = {x.q, in_q, queries, layout->key_heads, layout->key_width};
    seats.v = {x.q, in_q, queries + keys, layout->key_heads, layout->value_width};
    check_width(op, x.q, "q, with keys and values,", seats.v.first + layout->key_heads * layout->value_width);
  }
  seats.q = {x.q, in_q, 0, layout->heads, layout->query_width};
  return seats;
}

HeadTargets::Place HeadTargets::place(const HeadSeat& seat, const HeadSeats& seats) {
  std::int64_t columns = 0;  // of this input that seats see
  for (const HeadSeat* other : {&seats.q, &seats.k, &seats.v}) {
    if (other->input == seat.input) {
      columns += other->heads * other->width;
    } else if (other->variable && other->variable.value().data() == seat.variable.value().data()) {
      return {};
    }
  }
  const auto input = static_cast<std::size_t>(seat.input);
  if (!asked_[input]) {
    asked_[input] = true;
    targets_[input] = back_.target(seat.input);
    // The columns that no seat sees, as those of keys whose gradients go another way.
    const MutableView& whole = targets_[input].gradient;
    if (seat.heads > 0 && columns < whole.extent(2) && !targets_[input].accumulate) {
      const auto bytes = static_cast<std::size_t>(whole.elements()) * size_of(whole.dtype());
      if (bytes > 0) std::memset(whole.data(), 0, bytes);
      targets_[input].accumulate = true;
    }
  }
  return {seat.seen(targets_[input].gradient), targets_[input].accumulate};
}

}  // namespace qkv
