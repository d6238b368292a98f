// nn/layer_norm.cpp: rows brought to mean 0 and variance 1, and from there to what is learned.
#include <qkv/error.h>
#include <qkv/nn.h>

#include "base/message.h"
#include "nn/check.h"
#include "nn/parameters.h"

namespace qkv::nn {

LayerNorm::LayerNorm(std::int64_t columns, Init& init, const LayerNormOptions& with) : width(columns), options(with) {
  require_sizes("LayerNorm", {{"width", width}});
  if (options.affine) weight = init.ones({width});
  if (options.affine && options.bias) bias = init.zeros({width});
}

Variable LayerNorm::operator()(const Variable& x) const {
  if (x && (x.rank() < 1 || x.shape().back() != width)) {
    throw ShapeError(message("LayerNorm: x must be [..., ", width, "], and is ", x.shape().text()));
  }
  return layer_norm(x, weight, bias, options.epsilon);
}

Parameters LayerNorm::parameters(const std::string& prefix) const {
  return listed(prefix, {{"weight", weight}, {"bias", bias}});
}

}  // namespace qkv::nn
