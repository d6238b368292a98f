// optim/adam.cpp: Adam and AdamW.
#include <cmath>

#include <qkv/error.h>
#include <qkv/optim.h>

#include "base/message.h"
#include "kernels/steps.h"

namespace qkv {

Adam::Adam(std::vector<NamedParameter> parameters, const AdamOptions& options, bool decoupled)
    : Optimizer(std::move(parameters), options.rate, {"exp_avg", "exp_avg_sq"}),
      options_(options),
      decoupled_(decoupled) {
  const auto is_share = [](double beta) { return beta >= 0 && beta < 1; };
  if (!is_share(options.beta1) || !is_share(options.beta2)) {
    throw OptionError(message("Adam: beta1 and beta2 must be at least 0 and below 1, and are ", options.beta1, " and ",
                              options.beta2));
  }
  if (!(options.epsilon >= 0) || !(options.weight_decay >= 0)) {
    throw OptionError(message("Adam: epsilon and weight_decay must not be below 0, and are ", options.epsilon, " and ",
                              options.weight_decay));
  }
}

Adam::Adam(std::vector<NamedParameter> parameters, const AdamOptions& options)
    : Adam(std::move(parameters), options, false) {}

void Adam::step_piece(const Piece& piece) const {
  const auto t = static_cast<double>(piece.steps);
  const auto run = [&]<class T>(T) {
    kernels::step_kernels<T>(current_isa())
        .adam({.p = piece.value.as<T>(),
               .gradient = piece.gradient.as<T>(),
               .m = piece.buffers[0].as<T>(),
               .v = piece.buffers[1].as<T>(),
               .count = piece.value.elements(),
               .keep = static_cast<T>(decoupled_ ? 1 - rate() * options_.weight_decay : 1),
               .decay = static_cast<T>(decoupled_ ? 0 : options_.weight_decay),
               .beta1 = static_cast<T>(options_.beta1),
               .share1 = static_cast<T>(1 - options_.beta1),
               .beta2 = static_cast<T>(options_.beta2),
               .share2 = static_cast<T>(1 - options_.beta2),
               .rate = static_cast<T>(rate() / (1 - std::pow(options_.beta1, t))),
               .root = static_cast<T>(1 / std::sqrt(1 - std::pow(options_.beta2, t))),
               .epsilon = static_cast<T>(options_.epsilon)});
  };
  piece.value.dtype() == Dtype::float64 ? run(0.0) : run(0.0f);
}

}  // namespace qkv
