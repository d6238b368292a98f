// autograd/backward.cpp: walks a graph from an output back to the parameters.
#include <algorithm>
#include <string>

#include <qkv/autograd.h>
#include <qkv/error.h>

#include "autograd/pass.h"
#include "base/message.h"
#include "tensor/elements.h"

namespace qkv {
namespace tape {

Gradient& Pass::gradient(const Edge& edge) {
  if (edge.node->is_parameter()) return *edge.node->gradient;
  Waiting& waiting = waiting_[edge.node->number];
  if (!waiting.node) {
    waiting.node = edge.node;
    waiting.outputs.resize(edge.node->outputs.size());
  }
  return waiting.outputs[static_cast<std::size_t>(edge.output)];
}

void Pass::run(const Variable& output, const View& upstream) {
  const NoGrad no_grad;
  const Edge& start = State::of(output).edge;
  if (start.node->is_parameter()) {
    start.node->gradient->add(Tensor::copy_of(upstream));
  } else {
    gradient(start) = Gradient(upstream);
  }
  while (!waiting_.empty()) {
    auto latest = waiting_.extract(waiting_.begin());
    Node& node = *latest.mapped().node;
    if (!node.record) {
      throw OptionError(message("backward: the graph was used up by an earlier backward (what `", node.name,
                                "` kept is gone); say retain = true there to walk it again"));
    }
    upstream_ = &latest.mapped().outputs;
    Backward step(*this, node);
    node.record->function(step);
    if (!retain_) node.record.reset();
  }
}

}  // namespace tape

using tape::Edge;
using tape::Gradient;
using tape::Node;

namespace {

const Edge& edge_of(const Node& node, int input) { return node.record->inputs.at(static_cast<std::size_t>(input)); }

const Node::Output& meets(const Edge& edge) { return edge.node->outputs[static_cast<std::size_t>(edge.output)]; }

[[noreturn]] void refuse(const Node& node, int input, const std::string& what) {
  throw ShapeError(message("backward: `", node.name, "` gives its input ", input, " ", what));
}

std::string text_of(Dtype dtype, const Shape& shape) { return message(name_of(dtype), " ", shape.text()); }

void require_rows(const Node& node, int input, const View& rows, const View& values) {
  const Node::Output& whole = meets(edge_of(node, input));
  bool fits = rows.rank() == 1 && is_integer(rows.dtype()) && values.rank() == whole.shape.rank() &&
              values.rank() > 0 && values.extent(0) == rows.extent(0) && values.dtype() == whole.dtype;
  for (int axis = 1; fits && axis < values.rank(); ++axis) fits = values.extent(axis) == whole.shape[axis];
  if (!fits) {
    refuse(node, input,
           message("rows ", text_of(rows.dtype(), rows.shape()), " with values ",
                   text_of(values.dtype(), values.shape()), "; the input is ", text_of(whole.dtype, whole.shape)));
  }
  for (std::int64_t i = 0; i < rows.extent(0); ++i) {
    const std::int64_t row = integer_at(rows, i * rows.stride(0));
    if (row < 0 || row >= whole.shape[0]) {
      refuse(node, input, message("row ", row, "; the input is ", text_of(whole.dtype, whole.shape)));
    }
  }
}

}  // namespace

View Backward::upstream(int output) const { return pass_.upstream_->at(static_cast<std::size_t>(output)).view(); }

Tensor Backward::take_upstream(int output) {
  Gradient& gradient = pass_.upstream_->at(static_cast<std::size_t>(output));
  return gradient.present() ? gradient.take() : Tensor();
}

bool Backward::is_last() const { return !pass_.retain_; }

bool Backward::needs(int input) const { return edge_of(node_, input).node != nullptr; }

void Backward::add(int input, Tensor gradient) {
  if (!needs(input)) return;
  const Node::Output& whole = meets(edge_of(node_, input));
  if (!gradient || gradient.dtype() != whole.dtype || gradient.shape() != whole.shape) {
    refuse(node_, input,
           message("the gradient ", gradient ? text_of(gradient.dtype(), gradient.shape()) : "(absent)",
                   "; the input is ", text_of(whole.dtype, whole.shape)));
  }
  pass_.gradient(edge_of(node_, input)).add(std::move(gradient));
}

void Backward::add_rows(int input, View rows, View values) {
  if (!needs(input)) return;
  require_rows(node_, input, rows, values);
  const Node::Output& whole = meets(edge_of(node_, input));
  pass_.gradient(edge_of(node_, input)).add_rows(rows, values, whole.shape, whole.dtype);
}

Backward::Target Backward::target(int input) {
  const Edge& edge = edge_of(node_, input);
  if (!edge.node) refuse(node_, input, "a gradient, which it does not need: ask needs() first");
  Gradient& gradient = pass_.gradient(edge);
  const bool accumulate = gradient.present();
  return {gradient.open(meets(edge).shape, meets(edge).dtype), accumulate};
}

void backward(const Variable& output, View upstream, const BackwardOptions& options) {
  if (!output.needs_grad()) {
    throw OptionError(
        "backward: the variable depends on no parameter (or was computed while a NoGrad lived), so there is nothing to "
        "differentiate");
  }
  if (upstream.dtype() != output.dtype()) {
    throw DtypeError(message("backward: the output is ", name_of(output.dtype()), " and upstream is ",
                             name_of(upstream.dtype()), "; they must have one dtype"));
  }
  if (!upstream || upstream.shape() != output.shape()) {
    throw ShapeError(message("backward: upstream must have the output's shape ", output.shape().text(), ", not ",
                             upstream ? upstream.shape().text() : "be absent"));
  }
  const Tensor dense = upstream.is_dense() ? Tensor() : Tensor::copy_of(upstream);
  tape::Pass(options.retain).run(output, dense ? dense.view() : upstream);
}

void backward(const Variable& loss, const BackwardOptions& options) {
  if (!loss || loss.shape().elements() != 1) {
    throw ShapeError(message("backward: the loss must be one number, not of shape ", loss.shape().text(),
                             "; sum it, or give the upstream gradient"));
  }
  Tensor one(loss.shape(), loss.dtype());
  if (loss.dtype() == Dtype::float64) {
    one.values<double>()[0] = 1;
  } else {
    one.values<float>()[0] = 1;
  }
  backward(loss, one, options);
}

}  // namespace qkv
