// autograd/gradcheck.cpp: gradients compared with differences.
#include <algorithm>
#include <cmath>
#include <string>

#include <qkv/autograd.h>
#include <qkv/error.h>

#include "base/message.h"
#include "base/random.h"

namespace qkv {
namespace {

using Function = std::function<Variable(const std::vector<Variable>&)>;

// Numbers between -1 and 1 that are nowhere near 0, so that nothing is weighed away.
std::vector<double> random_numbers(std::int64_t count, std::uint64_t key) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = random_bits(key, i);
    numbers.push_back((0.25 + 0.75 * static_cast<double>(bits >> 1) * 0x1p-31) * (bits % 2 == 0 ? 1 : -1));
  }
  return numbers;
}

double dot(const View& dense, const std::vector<double>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) sum += dense.as<double>()[i] * weights[i];
  return sum;
}

class Check {
 public:
  Check(const Function& function, const std::vector<View>& inputs, const GradcheckOptions& options)
      : function_(function), options_(options) {
    for (const View& input : inputs) {
      if (input.dtype() != Dtype::float64) {
        throw DtypeError(message("gradcheck: input ", inputs_.size(), " is ", name_of(input.dtype()),
                                 "; differences are precise enough in float64 only"));
      }
      inputs_.push_back(parameter(Tensor::copy_of(input)));
    }
  }

  GradcheckResult run() {
    const Variable output = function_(inputs_);
    if (!output || output.dtype() != Dtype::float64) throw DtypeError("gradcheck: the function must return float64");
    weights_ = random_numbers(output.shape().elements(), random_key(options_.seed, 0));
    value_ = weighted(output);
    if (output.needs_grad()) backward(output, View(weights_, output.shape()));
    for (std::size_t i = 0; i < inputs_.size(); ++i) check_input(i);
    result_.passed = result_.worst <= options_.tolerance;
    return result_;
  }

 private:
  double weighted(const Variable& output) const {
    if (output.shape().elements() != static_cast<std::int64_t>(weights_.size())) {
      throw ShapeError(message("gradcheck: the function returned ", weights_.size(), " numbers first and then ",
                               output.shape().text()));
    }
    return dot(Tensor::copy_of(output.value()), weights_);
  }

  // The function's value with an input moved.
  double value_at(std::size_t input, const std::vector<double>& start, const std::vector<double>& direction,
                  double step) const {
    const NoGrad no_grad;
    auto* x = inputs_[input].mutable_value().as<double>();
    for (std::size_t i = 0; i < start.size(); ++i) x[i] = start[i] + step * direction[i];
    const double value = weighted(function_(inputs_));
    std::copy(start.begin(), start.end(), x);
    return value;
  }

  void check_input(std::size_t input) {
    const Variable& x = inputs_[input];
    const View value = x.value(), grad = x.grad();
    const auto count = static_cast<std::size_t>(value.elements());
    const std::vector<double> start(value.as<double>(), value.as<double>() + count);
    std::vector<double> gradient(count, 0.0);
    if (grad) std::copy_n(grad.as<double>(), count, gradient.begin());
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    // Below this, differences are made of rounding errors.
    const double least = std::max(1e-3 * largest, 1e-6 * std::max(1.0, std::abs(value_)));

    const bool by_element = value.elements() <= options_.element_by_element;
    const int directions = by_element ? static_cast<int>(count) : options_.directions;
    for (int n = 0; n < directions; ++n) {
      const auto at = static_cast<std::size_t>(n);
      std::vector<double> direction(count, 0.0);
      if (by_element) {
        direction[at] = 1;
      } else {
        direction = random_numbers(value.elements(), random_key(options_.seed, input + 1, n));
      }
      const double h = options_.step * (by_element ? std::max(1.0, std::abs(start[at])) : 1.0);
      const auto f = [&](double steps) { return value_at(input, start, direction, steps * h); };
      const double measured = (8 * (f(1) - f(-1)) - (f(2) - f(-2))) / (12 * h);
      double given = 0;
      for (std::size_t i = 0; i < count; ++i) given += gradient[i] * direction[i];
      const double error = std::abs(given - measured) / std::max({std::abs(given), std::abs(measured), least});
      if (error <= result_.worst) continue;  // not so for NaN
      result_.worst = std::isnan(error) ? HUGE_VAL : error;
      const std::string where = by_element ? message("element ", n, " (flat) of input ", input)
                                           : message("direction ", n, " of input ", input);
      result_.message = message("gradcheck: by ", where, " ", value.shape().text(), " backward gives ", given,
                                " and differences give ", measured, "; the relative error is ", error);
    }
  }

  const Function& function_;
  const GradcheckOptions& options_;
  std::vector<Variable> inputs_;
  std::vector<double> weights_;
  double value_ = 0;
  GradcheckResult result_;
};

}  // namespace

GradcheckResult gradcheck(const Function& function, const std::vector<View>& inputs, const GradcheckOptions& options) {
  return Check(function, inputs, options).run();
}

}  // namespace qkv
