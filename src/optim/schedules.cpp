// optim/schedules.cpp: the rate of each step.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <qkv/error.h>
#include <qkv/optim.h>

#include "base/message.h"

namespace qkv {

double RateSchedule::at(std::int64_t step) const {
  const bool ends = decay == Decay::linear || decay == Decay::cosine;
  if (!(rate >= 0) || !(least >= 0) || warmup < 0 || step < 0 || (ends && steps <= warmup)) {
    throw OptionError(message("RateSchedule: rate ", rate, ", least ", least, ", warmup ", warmup, ", steps ", steps,
                              ", at step ", step,
                              " make no schedule; none may be below 0, and linear and cosine need more steps than "
                              "warm-up"));
  }
  if (step < warmup) return rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (decay == Decay::none) return rate;
  if (decay == Decay::inverse_sqrt) {
    const auto from = static_cast<double>(std::max<std::int64_t>(warmup, 1));
    return std::max(least, rate * std::sqrt(from / static_cast<double>(step + 1)));
  }
  const double done = std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(steps - warmup));
  const double left = decay == Decay::linear ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
  return least + (rate - least) * left;
}

HalveOnPlateau::HalveOnPlateau(double rate, const PlateauOptions& options)
    : options_(options), memory_{rate, std::numeric_limits<double>::infinity(), 0} {
  if (!(rate >= 0) || !(options.factor > 0 && options.factor < 1) || options.patience < 0 || !(options.least >= 0)) {
    throw OptionError(message("HalveOnPlateau: rate ", rate, ", factor ", options.factor, ", patience ",
                              options.patience, ", least ", options.least,
                              ": the factor must be between 0 and 1, and none may be below 0"));
  }
}

double HalveOnPlateau::after(double measure) {
  if (measure < memory_.best) {
    memory_.best = measure;
    memory_.worse = 0;
  } else if (++memory_.worse > options_.patience) {
    memory_.rate = std::max(options_.least, memory_.rate * options_.factor);
    memory_.worse = 0;
  }
  return memory_.rate;
}

}  // namespace qkv
