// qkv/optim.h: steps down the gradient: optimisers, clipping, and schedules of the rate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <qkv/autograd.h>
#include <qkv/export.h>
#include <qkv/tensor.h>

namespace qkv {

// A parameter and what it is called in files.
struct NamedParameter {
  std::string name;
  Variable parameter;
};

// Part of an optimiser's state, to be saved or written to.
struct NamedState {
  std::string name;  // "encoder.weight.exp_avg"
  MutableView value;
};

// What optimisers have in common. Steps are the same, bit for bit, for any number of threads.
class QKV_API Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step();       // changes every parameter that has a gradient
  void zero_grad();  // of all parameters

  double rate() const { return rate_; }
  void set_rate(double rate);  // from the next step on. Throws OptionError below 0.

  const std::vector<NamedParameter>& parameters() const { return parameters_; }
  // All that a step depends on besides parameters, gradients and options, by parameter and PyTorch's names. The views
  // are valid as long as the optimiser lives.
  std::vector<NamedState> state();

 protected:
  // Throws OptionError: what is no parameter, a name or a parameter that comes twice, a rate below 0.
  // Each parameter gets a tensor of zeros of its own shape and dtype for each of `buffers`, and counts its steps.
  Optimizer(std::vector<NamedParameter> parameters, double rate, const std::vector<const char*>& buffers);

  // What a step does to some neighbouring elements of one parameter.
  struct Piece {
    MutableView value, gradient;
    std::vector<MutableView> buffers;
    std::int64_t steps;  // that the parameter has made, this one included
  };
  virtual void step_piece(const Piece& piece) const = 0;
  // Whether rows that were not looked up (Variable::grad_rows) are left alone.
  virtual bool leaves_other_rows() const = 0;

 private:
  struct Slot {
    Tensor steps;  // one int64
    std::vector<Tensor> buffers;
  };

  std::vector<NamedParameter> parameters_;
  double rate_;
  std::vector<const char*> buffer_names_;
  std::vector<Slot> slots_;  // one a parameter
};

struct SgdOptions {
  double rate = 1e-3;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient, times the parameter
};

// PyTorch's SGD. g = gradient + weight_decay p; with momentum b = momentum b + (1 - dampening) g (at first b = g), and
// g = b, or g + momentum b with nesterov; p -= rate g.
// With neither momentum nor weight decay a lookup's gradient costs its rows alone. Throws OptionError.
class QKV_API Sgd : public Optimizer {
 public:
  explicit Sgd(std::vector<NamedParameter> parameters, const SgdOptions& options = {});

 private:
  void step_piece(const Piece& piece) const override;
  bool leaves_other_rows() const override;
  SgdOptions options_;
};

struct AdamOptions {
  double rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  // Rows of a gradient that were not looked up (embeddings) stay as they are, moments too, as in PyTorch's SparseAdam:
  // a step costs as much as the rows that were. Without it their moments fade and move them on, as PyTorch's Adam does.
  bool lazy_rows = false;
};

// PyTorch's Adam: m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
// p -= rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon). Weight decay is added to the gradient, times p.
// Throws OptionError.
class QKV_API Adam : public Optimizer {
 public:
  explicit Adam(std::vector<NamedParameter> parameters, const AdamOptions& options = {});

 protected:
  Adam(std::vector<NamedParameter> parameters, const AdamOptions& options, bool decoupled);

 private:
  void step_piece(const Piece& piece) const override;
  bool leaves_other_rows() const override { return options_.lazy_rows; }
  AdamOptions options_;
  bool decoupled_;
};

// PyTorch's AdamW: the same, but weight decay shrinks the parameter itself, by rate * weight_decay. PyTorch's default
// is a weight_decay of 0.01; here it must be said.
class QKV_API AdamW : public Adam {
 public:
  explicit AdamW(std::vector<NamedParameter> parameters, const AdamOptions& options = {})
      : Adam(std::move(parameters), options, true) {}
};

// Shrinks all gradients by one factor so that the root of the sum of all their squares is at most max_norm, and returns
// what it was. A norm that is not finite is returned and nothing is changed. Summed in double precision, in one order.
// Throws OptionError for a max_norm that is not above 0.
QKV_API double clip_grad_norm(const std::vector<NamedParameter>& parameters, double max_norm);

// The rate of each step, counted from 0: rising from rate / warmup to rate over the first `warmup` steps, then falling.
enum class Decay : std::uint8_t {
  none,
  linear,        // to `least` at step `steps`, along a line
  cosine,        // likewise, along half a cosine
  inverse_sqrt,  // as 1 / sqrt(step); never ends
};
struct RateSchedule {
  double rate = 1e-3;
  std::int64_t warmup = 0;
  Decay decay = Decay::none;
  std::int64_t steps = 0;  // linear and cosine: all together, warm-up included
  double least = 0;

  QKV_API double at(std::int64_t step) const;  // throws OptionError for numbers that make no schedule
};

// Halves the rate when a measure, for instance the loss on held-out data, does not get lower any more.
struct PlateauOptions {
  double factor = 0.5;
  std::int64_t patience = 0;  // so many measures in a row may be no better
  double least = 0;
};
class QKV_API HalveOnPlateau {
 public:
  explicit HalveOnPlateau(double rate, const PlateauOptions& options = {});  // throws OptionError

  double after(double measure);  // the rate to go on with. NaN is no better.

  // All it remembers, to be saved and set again.
  struct Memory {
    double rate, best;
    std::int64_t worse;  // measures in a row that were no better
  };
  const Memory& memory() const { return memory_; }
  void set_memory(const Memory& memory) { memory_ = memory; }

 private:
  PlateauOptions options_;
  Memory memory_;
};

}  // namespace qkv
