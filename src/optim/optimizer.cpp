// optim/optimizer.cpp: what optimisers have in common: parameters, their state, and the walk over them.
#include <algorithm>
#include <set>

#include <qkv/error.h>
#include <qkv/optim.h>

#include "base/blocks.h"
#include "base/message.h"

namespace qkv {
namespace {

void require_rate(double rate) {
  if (!(rate >= 0)) throw OptionError(message("Optimizer: the rate must not be below 0, and is ", rate));
}

// Elements first .. first + count - 1 of a dense array.
MutableView part(const MutableView& dense, std::int64_t first, std::int64_t count) {
  return MutableView(dense.as<char>() + first * static_cast<std::int64_t>(size_of(dense.dtype())), dense.dtype(),
                     Shape{count});
}

}  // namespace

Optimizer::Optimizer(std::vector<NamedParameter> parameters, double rate, const std::vector<const char*>& buffers)
    : parameters_(std::move(parameters)), rate_(rate), buffer_names_(buffers) {
  require_rate(rate);
  std::set<std::string> names;
  std::set<const void*> memory;
  for (const NamedParameter& named : parameters_) {
    if (!names.insert(named.name).second) {
      throw OptionError(message("Optimizer: the name ", named.name, " comes twice"));
    }
    const MutableView value = named.parameter.mutable_value();  // throws for what is no parameter
    if (value.elements() > 0 && !memory.insert(value.data()).second) {
      throw OptionError(message("Optimizer: the parameter ", named.name, " is there under another name too"));
    }
    Slot slot{Tensor(Shape{}, Dtype::int64), {}};
    for (std::size_t i = 0; i < buffers.size(); ++i) slot.buffers.push_back(Tensor(value.shape(), value.dtype()));
    slots_.push_back(std::move(slot));
  }
}

Optimizer::~Optimizer() = default;

void Optimizer::set_rate(double rate) {
  require_rate(rate);
  rate_ = rate;
}

void Optimizer::zero_grad() {
  for (const NamedParameter& named : parameters_) named.parameter.zero_grad();
}

std::vector<NamedState> Optimizer::state() {
  std::vector<NamedState> all;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::string& name = parameters_[i].name;
    all.push_back({name + ".step", slots_[i].steps});
    for (std::size_t b = 0; b < buffer_names_.size(); ++b) {
      all.push_back({name + "." + buffer_names_[b], slots_[i].buffers[b]});
    }
  }
  return all;
}

void Optimizer::step() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Variable& parameter = parameters_[i].parameter;
    const MutableView gradient = parameter.mutable_grad(), value = parameter.mutable_value();
    if (!gradient) continue;
    Slot& slot = slots_[i];
    const std::int64_t steps = ++slot.steps.values<std::int64_t>()[0];
    const auto on = [&](std::int64_t first, std::int64_t count) {
      Piece piece{part(value, first, count), part(gradient, first, count), {}, steps};
      for (Tensor& buffer : slot.buffers) piece.buffers.push_back(part(buffer, first, count));
      step_piece(piece);
    };
    const View rows = leaves_other_rows() ? parameter.grad_rows() : View();
    constexpr std::int64_t block = 1 << 14;
    if (rows) {
      const std::int64_t width = value.elements() / std::max<std::int64_t>(value.extent(0), 1);
      for_blocks(rows.extent(0), block / (width + 1) + 1, [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t r = first; r < first + count; ++r) on(rows.as<std::int64_t>()[r] * width, width);
      });
    } else {
      for_blocks(value.elements(), block, on);
    }
  }
}

}  // namespace qkv
