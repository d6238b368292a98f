// qkv/autograd.h: the tape: variables remember how they were computed, and backward gives the gradients of what they
// were computed from.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <qkv/export.h>
#include <qkv/tensor.h>

namespace qkv {

// The library's own parts of the tape.
namespace tape {
struct State;
struct Node;
class Pass;
}  // namespace tape

// An array of float32 or float64 on the tape. A handle: copies share the value and the gradient.
//
// A constant needs no gradient. A parameter is a leaf that needs one. What an op (qkv/ops.h) computes from variables
// needs one where any of them does, and then remembers the op; it is what `backward` walks.
//
// Graphs may be built by several threads at once; of one graph, and of parameters that graphs share, only one thread at
// a time may change anything (backward, zero_grad, an optimiser's step).
class QKV_API Variable {
 public:
  Variable() = default;             // absent, like View(): an optional argument that was not given
  explicit Variable(Tensor value);  // a constant. Throws DtypeError unless float32 or float64.

  explicit operator bool() const { return state_ != nullptr; }
  View value() const;  // any strides: a transposed variable sees the memory of the original
  const Shape& shape() const;
  Dtype dtype() const;
  int rank() const { return shape().rank(); }
  std::int64_t extent(int axis) const { return shape()[axis]; }
  bool needs_grad() const;
  // Whether both are handles of one variable, or both absent.
  bool is_same_as(const Variable& other) const { return state_ == other.state_; }

  // The gradient that parameters have gathered; dense; absent before the first backward and after zero_grad, and for
  // all that is no parameter. The view is valid until then, or until the next backward.
  View grad() const;
  // Which rows (indices of the first axis) of the gradient may differ from 0: int64, rising. Absent where all may, that
  // is, where anything but lookups (embedding) added to it. An optimiser need not touch the others.
  View grad_rows() const;
  // Forgets the gradient. Its memory is kept for the next one.
  void zero_grad() const;

  // For optimisers: the memory of a parameter and of its gradient. Throw OptionError for all that is no parameter.
  // What is changed between a forward pass and its backward pass spoils the gradients.
  MutableView mutable_value() const;
  MutableView mutable_grad() const;  // absent where grad() is

  // The same value as a constant: what an op keeps for its backward pass (also of its own output, which must not
  // remember itself), or where a gradient shall stop.
  Variable detach() const;
  // A constant that sees this variable's memory through another view of it, and keeps it alive.
  Variable seen_as(View view) const;

 private:
  friend class tape::Pass;
  friend struct tape::State;
  explicit Variable(std::shared_ptr<const tape::State> state) : state_(std::move(state)) {}
  std::shared_ptr<const tape::State> state_;
};

// A leaf that needs a gradient.
QKV_API Variable parameter(Tensor value);

// While one lives, its thread records nothing: what ops compute is constant.
class QKV_API NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};

struct BackwardOptions {
  bool retain = false;  // keep the graph, so that backward can walk it again
};

// Adds d loss / d parameter to the gradient of every parameter that `loss`, one number, was computed from.
//
// Ops run in the reverse order of their recording, and gradients are summed in that order: the same bits every time.
// Each op's memory is released when it has run, so a graph serves one backward unless `retain` is said. There are no
// gradients of gradients: what backward computes is not recorded. Throws ShapeError where loss is not one number,
// OptionError where it depends on no parameter or its graph was used up. If an op throws, parameters hold what was
// added so far; zero_grad before going on.
QKV_API void backward(const Variable& loss, const BackwardOptions& options = {});
// The same for an output of any shape, given the gradient `upstream` of a loss by it: any strides, the output's dtype.
QKV_API void backward(const Variable& output, View upstream, const BackwardOptions& options = {});

// What the backward function of an op gets: the gradients of a loss by the op's outputs; what it gives: those by its
// inputs.
class QKV_API Backward {
 public:
  // By an output; dense. Absent where the loss does not depend on it; never so for the only output of an op.
  View upstream(int output = 0) const;
  // The same to keep: for a gradient that is the upstream one, changed in place or not. upstream() is absent after it.
  Tensor take_upstream(int output = 0);

  // Whether the function runs for the last time, so that it may give away what it keeps: not so for a retained graph.
  bool is_last() const;

  // Whether an input needs a gradient; nothing needs to be computed for one that does not. What is added for it is
  // ignored.
  bool needs(int input) const;
  // Adds to an input's gradient. The input's shape and dtype.
  void add(int input, Tensor gradient);
  // Adds values[i] to row rows[i] of an input's gradient, in this order where a row comes twice. rows: [n], int32 or
  // int64, each below the input's first extent; values: [n, the input's other extents], any strides.
  void add_rows(int input, View rows, View values);
  // Where to compute an input's gradient in place, dense: add to what is there if `accumulate`, write all of it if not.
  struct Target {
    MutableView gradient;
    bool accumulate;
  };
  Target target(int input);

 private:
  friend class tape::Pass;
  Backward(tape::Pass& pass, const tape::Node& node) : pass_(pass), node_(node) {}
  tape::Pass& pass_;
  const tape::Node& node_;
};

// A backward function with all it keeps. Moves only, and so it may hold tensors.
class QKV_API BackwardFunction {
 public:
  template <class F>
  requires(std::is_invocable_v<F&, Backward&> && !std::is_same_v<F, BackwardFunction>) BackwardFunction(F function)
      : held_(new F(std::move(function)), [](void* held) { delete static_cast<F*>(held); }),
        call_([](void* held, Backward& backward) { (*static_cast<F*>(held))(backward); }) {}

  void operator()(Backward& backward) const { call_(held_.get(), backward); }

 private:
  std::unique_ptr<void, void (*)(void*)> held_;
  void (*call_)(void*, Backward&);
};

// Whether an op with these inputs will be recorded: one of them needs a gradient, and no NoGrad lives. If not, what is
// needed for the backward pass alone need not be computed.
QKV_API bool is_recorded(const std::vector<Variable>& inputs);

// Puts an op on the tape: returns `value` (a constant, just computed from the inputs) as a variable that remembers
// them, or as it is where nothing is recorded. Absent inputs are fine and need no gradient.
//
//   Variable square(const Variable& x) {
//     Tensor y = ...;
//     return record("square", Variable(std::move(y)), {x}, [x](Backward& back) {
//       Tensor dx = back.take_upstream();
//       ...  // dx *= 2 x
//       back.add(0, std::move(dx));
//     });
//   }
//
// The backward function runs once, or more often where the graph is retained, on the thread that calls backward. It may
// hold inputs, and outputs by detach(). `name`, a literal, is for messages.
QKV_API Variable record(const char* name, const Variable& value, const std::vector<Variable>& inputs,
                        BackwardFunction function);
// The same for an op with several outputs.
QKV_API std::vector<Variable> record(const char* name, const std::vector<Variable>& values,
                                     const std::vector<Variable>& inputs, BackwardFunction function);

struct GradcheckOptions {
  double tolerance = 1e-6;               // of the relative error
  double step = 1e-3;                    // of the differences, times the magnitude of an element where that is above 1
  std::int64_t element_by_element = 64;  // an input with more elements is checked along random directions
  int directions = 8;                    // so many
  std::uint64_t seed = 1;                // of the directions and of the weights of the outputs
};

struct GradcheckResult {
  bool passed = true;
  double worst = 0;     // the largest relative error
  std::string message;  // where it is, and the two numbers
  explicit operator bool() const { return passed; }
};

// Compares the gradients that backward gives with differences of the function's values.
//
// The function gets the inputs as parameters and returns a variable of any shape, the same each time it is called; its
// outputs are summed with random weights. Each derivative is measured by the central difference of fourth order, from
// four values at x - 2h .. x + 2h, where the function must be smooth. An error is relative to the larger of both
// numbers or, where they are small, to 1e-3 of the largest of this input.
// Throws DtypeError unless all is float64: differences of float32 say nothing at 1e-6.
QKV_API GradcheckResult gradcheck(const std::function<Variable(const std::vector<Variable>&)>& function,
                                  const std::vector<View>& inputs, const GradcheckOptions& options = {});

}  // namespace qkv
