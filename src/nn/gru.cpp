// nn/gru.cpp: gated recurrent units with their parameters.
#include <cmath>

#include <qkv/error.h>
#include <qkv/nn.h>

#include "base/message.h"
#include "nn/check.h"
#include "nn/parameters.h"

namespace qkv::nn {

Gru::Gru(std::int64_t in, std::int64_t hidden, Init& init, const GruLayerOptions& with)
    : options(with), stream(init.next()) {
  require_sizes("Gru", {{"in", in}, {"hidden", hidden}});
  require_probability("Gru", options.dropout);
  if (options.layers < 1) throw OptionError(message("Gru: there must be a layer, and there are ", options.layers));
  const double bound = hidden > 0 ? 1 / std::sqrt(static_cast<double>(hidden)) : 0;
  const std::int64_t directions = options.both_directions ? 2 : 1;
  for (std::int64_t set = 0; set < options.layers * directions; ++set) {
    const std::int64_t width = set < directions ? in : directions * hidden;
    GruWeights made = {init.uniform({3 * hidden, width}, -bound, bound),
                       init.uniform({3 * hidden, hidden}, -bound, bound)};
    if (options.bias) {
      made.b_ih = init.uniform({3 * hidden}, -bound, bound);
      made.b_hh = init.uniform({3 * hidden}, -bound, bound);
    }
    weights.push_back(made);
  }
}

GruStates Gru::operator()(const Variable& x, const Mode& mode, const GruInput& input) const {
  return gru(x, weights,
             {.both_directions = options.both_directions,
              .h0 = input.h0,
              .lengths = input.lengths,
              .dropout = options.dropout,
              .training = mode.training,
              .seed = seed_of(mode, stream)});
}

Parameters Gru::parameters(const std::string& prefix) const {
  Parameters all;
  const std::size_t directions = options.both_directions ? 2 : 1;
  for (std::size_t set = 0; set < weights.size(); ++set) {
    const GruWeights& of = weights[set];
    const std::string end = "_l" + std::to_string(set / directions) + (set % directions == 1 ? "_reverse" : "");
    for (NamedParameter& named :
         listed(prefix, {{"weight_ih", of.W_ih}, {"weight_hh", of.W_hh}, {"bias_ih", of.b_ih}, {"bias_hh", of.b_hh}})) {
      all.push_back({named.name + end, named.parameter});
    }
  }
  return all;
}

}  // namespace qkv::nn
