// autograd/node.h: what the tape is made of.
//
// A variable is a handle of a State: a value, and the node that its gradient goes to. A Node is a parameter, or an op
// that was recorded; edges lead from an op to the nodes of its inputs. Nodes do not hold values: an op's backward
// function holds those that it needs, and the others are freed when the last variable lets go of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <qkv/autograd.h>

#include "autograd/gradient.h"

namespace qkv::tape {

// Where the gradient of a variable goes: to an output of a node. No node: it needs none.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
};

struct State {
  std::shared_ptr<Tensor> memory;
  View value;  // of that memory
  Edge edge;

  static const State& of(const Variable& variable) { return *variable.state_; }
  static Variable variable(State state) { return Variable(std::make_shared<const State>(std::move(state))); }
};

// What an op needs to run backward.
struct Record {
  std::vector<Edge> inputs;
  BackwardFunction function;
  Record* next = nullptr;  // of those that wait to be freed; see ~Node
};

struct Node {
  struct Output {
    Shape shape;
    Dtype dtype;
  };

  const char* name;                    // of the op
  std::uint64_t number;                // ops that were recorded later have higher ones
  std::vector<Output> outputs;         // a parameter has one
  std::unique_ptr<Record> record;      // of an op, until it is used up
  std::unique_ptr<Gradient> gradient;  // of a parameter

  Node(const char* name_, std::vector<Output> outputs_);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  bool is_parameter() const { return gradient != nullptr; }

  static std::int64_t alive();  // how many there are; for tests
};

}  // namespace qkv::tape
