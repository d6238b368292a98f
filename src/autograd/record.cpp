// autograd/record.cpp: ops on their way onto the tape.
#include <algorithm>

#include <qkv/autograd.h>

#include "autograd/node.h"

namespace qkv {

using tape::Edge;
using tape::Node;
using tape::Record;
using tape::State;

namespace {

thread_local int no_grads = 0;  // that live on this thread

}  // namespace

NoGrad::NoGrad() { ++no_grads; }
NoGrad::~NoGrad() { --no_grads; }

bool is_recorded(const std::vector<Variable>& inputs) {
  return no_grads == 0 && std::any_of(inputs.begin(), inputs.end(), [](const Variable& x) { return x.needs_grad(); });
}

std::vector<Variable> record(const char* name, const std::vector<Variable>& values, const std::vector<Variable>& inputs,
                             BackwardFunction function) {
  if (!is_recorded(inputs)) return values;
  std::vector<Node::Output> outputs;
  for (const Variable& value : values) outputs.push_back({value.shape(), value.dtype()});
  std::vector<Edge> edges;
  for (const Variable& input : inputs) edges.push_back(input ? State::of(input).edge : Edge());
  const auto node = std::make_shared<Node>(name, std::move(outputs));
  node->record = std::make_unique<Record>(Record{std::move(edges), std::move(function)});

  std::vector<Variable> recorded;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const State& value = State::of(values[i]);
    recorded.push_back(State::variable({value.memory, value.value, {node, static_cast<int>(i)}}));
  }
  return recorded;
}

Variable record(const char* name, const Variable& value, const std::vector<Variable>& inputs,
                BackwardFunction function) {
  return record(name, std::vector<Variable>{value}, inputs, std::move(function)).front();
}

}  // namespace qkv
