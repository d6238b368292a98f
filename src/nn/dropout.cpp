// nn/dropout.cpp: elements that become 0 by chance, in training.
#include <qkv/nn.h>

#include "nn/check.h"

namespace qkv::nn {

Dropout::Dropout(double chance, Init& init) : probability(chance), stream(init.next()) {
  require_probability("Dropout", probability);
}

Variable Dropout::operator()(const Variable& x, const Mode& mode) const {
  return dropout(x, {.probability = probability, .training = mode.training, .seed = seed_of(mode, stream)});
}

}  // namespace qkv::nn
