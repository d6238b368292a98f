// bench/chosen_isa.h: an instruction set for a while.
#pragma once

#include <optional>

#include <qkv/isa.h>

namespace qkv::bench {

// The given instruction set, if any, is the current one while this lives. Throws OptionError if not supported here.
class ChosenIsa {
 public:
  explicit ChosenIsa(std::optional<Isa> isa) : before_(current_isa()) {
    if (isa) set_isa(*isa);
  }
  ~ChosenIsa() { set_isa(before_); }
  ChosenIsa(const ChosenIsa&) = delete;
  ChosenIsa& operator=(const ChosenIsa&) = delete;

 private:
  Isa before_;
};

}  // namespace qkv::bench
