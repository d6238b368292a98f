// autograd/gradient.h: a gradient that is being summed.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/tensor.h>

namespace qkv::tape {

// Absent, or a dense array; if only rows were added to it, it knows which, and that all others are 0.
class Gradient {
 public:
  Gradient() = default;
  // Somebody else's memory, dense, that outlives it: to be read, and copied by take.
  explicit Gradient(const View& borrowed) : state_(State::dense), borrowed_(borrowed) {}

  bool present() const { return state_ != State::absent; }
  View view() const { return !present() ? View() : borrowed_ ? borrowed_ : sum_.view(); }
  MutableView mutable_view() { return present() ? sum_.view() : MutableView(); }
  View rows() const;  // absent unless it knows them

  void add(Tensor gradient);
  // See Backward. rows and values are checked; shape and dtype are those of the whole.
  void add_rows(const View& rows, const View& values, const Shape& shape, Dtype dtype);
  // The whole array, to be added to if it was present and to be written if not. Present from now on.
  MutableView open(const Shape& shape, Dtype dtype);

  Tensor take();  // absent from now on
  void clear();   // absent from now on, but keeps its memory

 private:
  enum class State : std::uint8_t { absent, rows, dense };

  void require_zeros(const Shape& shape, Dtype dtype);

  State state_ = State::absent;
  Tensor sum_;
  View borrowed_;
  bool all_zero_ = false;           // of a sum that is absent
  std::vector<std::int64_t> rows_;  // rising
};

}  // namespace qkv::tape
