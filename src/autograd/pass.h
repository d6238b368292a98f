// autograd/pass.h: one walk over a graph, from an output back to the parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "autograd/node.h"

namespace qkv::tape {

// Gradients that ops wait for, by the numbers of their nodes, the highest first. Every op that adds to a gradient was
// recorded later than the op it belongs to, so the gradients of the highest number are complete.
class Pass {
 public:
  explicit Pass(bool retain) : retain_(retain) {}

  // From an output on, whose gradient is given, dense.
  void run(const Variable& output, const View& upstream);

 private:
  friend class qkv::Backward;

  struct Waiting {
    std::shared_ptr<Node> node;
    std::vector<Gradient> outputs;
  };

  // The gradient that an edge leads to.
  Gradient& gradient(const Edge& edge);

  bool retain_;
  std::map<std::uint64_t, Waiting, std::greater<>> waiting_;
  std::vector<Gradient>* upstream_ = nullptr;  // of the op that runs
};

}  // namespace qkv::tape
