// ops/heads.h: queries, keys and values in variables that may hold those of all heads side by side.
#pragma once

#include <cstdint>
#include <optional>

#include <qkv/attend_op.h>

namespace qkv {

// What a variable shows of queries, keys or values: all of it as it is, or heads in some of its columns.
struct HeadSeat {
  Variable variable = {};
  int input = 0;                                 // the variable's place among the inputs of an op
  std::int64_t first = 0, heads = 0, width = 0;  // heads = 0: as it is

  View seen(const View& whole) const {
    return heads == 0 ? whole : whole.slice(2, first, heads * width).split(2, heads).swapped(1, 2);
  }
  MutableView seen(const MutableView& whole) const {
    return heads == 0 ? whole : whole.slice(2, first, heads * width).split(2, heads).swapped(1, 2);
  }
  View view() const { return seen(variable.value()); }
};

struct HeadSeats {
  HeadSeat q, k, v;
};

// Without a layout q, k and v are inputs 0, 1 and 2 as they are. With one, they are found as attend_heads says. Throws
// ShapeError naming the op.
HeadSeats seats_of(const char* op, const AttendVariables& x, const std::optional<HeadLayout>& layout);
// The keys' and values' alone.
HeadSeats key_seats_of(const char* op, const AttendVariables& x, const std::optional<HeadLayout>& layout);

// Gradients of a backward pass in place: those of inputs that several seats share are one array.
class HeadTargets {
 public:
  explicit HeadTargets(Backward& back) : back_(back) {}

  struct Place {
    MutableView gradient;
    bool add = false;
  };
  // For a seat of an input that needs a gradient; `seats` are all of the op. Absent where another input sees the same
  // memory: then the gradient is an array of its own.
  Place place(const HeadSeat& seat, const HeadSeats& seats);

 private:
  Backward& back_;
  Backward::Target targets_[3] = {};
  bool asked_[3] = {};
};

}  // namespace qkv
