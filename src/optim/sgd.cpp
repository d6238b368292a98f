// optim/sgd.cpp: stochastic gradient descent.
#include <qkv/error.h>
#include <qkv/optim.h>

#include "base/message.h"
#include "kernels/steps.h"

namespace qkv {
namespace {

std::vector<const char*> buffers(const SgdOptions& options) {
  if (options.momentum == 0) return {};
  return {"momentum_buffer"};
}

}  // namespace

Sgd::Sgd(std::vector<NamedParameter> parameters, const SgdOptions& options)
    : Optimizer(std::move(parameters), options.rate, buffers(options)), options_(options) {
  if (!(options.momentum >= 0) || !(options.weight_decay >= 0)) {
    throw OptionError(message("Sgd: momentum and weight_decay must not be below 0, and are ", options.momentum, " and ",
                              options.weight_decay));
  }
  if (options.nesterov && (options.momentum == 0 || options.dampening != 0)) {
    throw OptionError("Sgd: nesterov needs a momentum, and no dampening");
  }
}

bool Sgd::leaves_other_rows() const { return options_.momentum == 0 && options_.weight_decay == 0; }

void Sgd::step_piece(const Piece& piece) const {
  const auto run = [&]<class T>(T) {
    kernels::step_kernels<T>(current_isa())
        .sgd({.p = piece.value.as<T>(),
              .gradient = piece.gradient.as<T>(),
              .b = piece.buffers.empty() ? nullptr : piece.buffers[0].as<T>(),
              .count = piece.value.elements(),
              .rate = static_cast<T>(rate()),
              .momentum = static_cast<T>(options_.momentum),
              .share = static_cast<T>(piece.steps == 1 ? 1 : 1 - options_.dampening),
              .decay = static_cast<T>(options_.weight_decay),
              .nesterov = options_.nesterov});
  };
  piece.value.dtype() == Dtype::float64 ? run(0.0) : run(0.0f);
}

}  // namespace qkv
