// nn/linear.cpp: x W^T + b with its parameters.
#include <cmath>

#include <qkv/nn.h>

#include "nn/check.h"
#include "nn/parameters.h"

namespace qkv::nn {

Linear::Linear(std::int64_t in, std::int64_t out, Init& init, const LinearOptions& options) {
  require_sizes("Linear", {{"in", in}, {"out", out}});
  weight = init.kaiming_uniform({out, in}, std::sqrt(5.0));
  const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
  if (options.bias) bias = init.uniform({out}, -bound, bound);
}

Variable Linear::operator()(const Variable& x) const { return linear(x, weight, bias); }

Parameters Linear::parameters(const std::string& prefix) const {
  return listed(prefix, {{"weight", weight}, {"bias", bias}});
}

}  // namespace qkv::nn
