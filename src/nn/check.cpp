// nn/check.cpp: what layers ask of their options.
#include "nn/check.h"

#include <qkv/error.h>

#include "base/message.h"
#include "base/random.h"

namespace qkv::nn {

void require_sizes(const char* layer, std::initializer_list<NamedSize> sizes) {
  for (const NamedSize& named : sizes) {
    if (named.size < 0)
      throw OptionError(message(layer, ": ", named.name, " must not be below 0, and is ", named.size));
  }
}

void require_probability(const char* layer, double probability) {
  if (probability >= 0 && probability < 1) return;
  throw OptionError(message(layer, ": a probability of dropout is at least 0 and below 1, not ", probability));
}

std::uint64_t seed_of(const Mode& mode, std::uint64_t stream) { return random_key(mode.seed, stream); }

AttendOptions with_layer(const char* layer, const AttendOptions& options, double dropout, const Mode& mode,
                         std::uint64_t stream) {
  if (options.score.kind != Score().kind || options.dropout != 0 || options.training || options.seed) {
    throw OptionError(message(layer,
                              ": score, dropout, training and seed are the layer's and its mode's; leave them "
                              "out of the options of a call"));
  }
  AttendOptions with = options;
  with.dropout = dropout;
  with.training = mode.training;
  if (mode.training) with.seed = seed_of(mode, stream);
  return with;
}

}  // namespace qkv::nn
