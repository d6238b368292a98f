// autograd/variable.cpp: handles of values on the tape.
#include <qkv/autograd.h>

#include <qkv/error.h>

#include "autograd/node.h"
#include "base/message.h"

namespace qkv {

using tape::Node;
using tape::State;

Variable::Variable(Tensor value) {
  if (!value || (value.dtype() != Dtype::float32 && value.dtype() != Dtype::float64)) {
    throw DtypeError(message("Variable: a value must be float32 or float64, not ",
                             value ? name_of(value.dtype()) : std::string_view("absent")));
  }
  auto memory = std::make_shared<Tensor>(std::move(value));
  const View view = memory->view();
  state_ = std::make_shared<const State>(State{std::move(memory), view, {}});
}

View Variable::value() const { return state_ ? state_->value : View(); }

const Shape& Variable::shape() const {
  static const Shape none;
  return state_ ? state_->value.shape() : none;
}

Dtype Variable::dtype() const { return state_ ? state_->value.dtype() : Dtype::float32; }

bool Variable::needs_grad() const { return state_ && state_->edge.node; }

namespace {

// The node of a parameter; null for everything else.
Node* parameter_node(const std::shared_ptr<const State>& state) {
  return state && state->edge.node && state->edge.node->is_parameter() ? state->edge.node.get() : nullptr;
}

Node& require_parameter(const std::shared_ptr<const State>& state, const char* operation) {
  Node* node = parameter_node(state);
  if (node == nullptr) {
    throw OptionError(message(operation, ": the variable is no parameter",
                              !state             ? ", it is absent"
                              : state->edge.node ? message(", but what ", state->edge.node->name, " computed")
                                                 : ", but a constant"));
  }
  return *node;
}

}  // namespace

View Variable::grad() const {
  const Node* node = parameter_node(state_);
  return node != nullptr ? node->gradient->view() : View();
}

View Variable::grad_rows() const {
  const Node* node = parameter_node(state_);
  return node != nullptr ? node->gradient->rows() : View();
}

void Variable::zero_grad() const { require_parameter(state_, "zero_grad").gradient->clear(); }

MutableView Variable::mutable_value() const {
  require_parameter(state_, "mutable_value");
  return *state_->memory;
}

MutableView Variable::mutable_grad() const {
  return require_parameter(state_, "mutable_grad").gradient->mutable_view();
}

Variable Variable::detach() const {
  return needs_grad() ? State::variable({state_->memory, state_->value, {}}) : *this;
}

Variable Variable::seen_as(View view) const { return State::variable({state_->memory, view, {}}); }

Variable parameter(Tensor value) {
  const Variable constant(std::move(value));
  State state = State::of(constant);
  state.edge.node =
      std::make_shared<Node>("parameter", std::vector<Node::Output>{{constant.shape(), constant.dtype()}});
  state.edge.node->gradient = std::make_unique<tape::Gradient>();
  return State::variable(std::move(state));
}

}  // namespace qkv
