// kernels/isa.cpp: which instruction sets this machine has, and which one is in use.
#include <qkv/isa.h>

#include <hwy/targets.h>

#include <algorithm>
#include <atomic>

#include <qkv/error.h>

#include "base/message.h"
#include "kernels/isa.h"

namespace qkv {
namespace {

bool is_supported(Isa isa) {
  const std::int64_t targets = hwy::SupportedTargets();
  switch (isa) {
    case Isa::avx512:
      return (targets & HWY_AVX3) != 0;
    case Isa::avx2:
      return (targets & HWY_AVX2) != 0;
    case Isa::baseline:
      break;
  }
  return true;
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa = supported_isas().front();
  return isa;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    case Isa::baseline:
      break;
  }
  return "baseline";
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas = {Isa::avx512, Isa::avx2, Isa::baseline};
  std::erase_if(isas, [](Isa isa) { return !is_supported(isa); });
  return isas;
}

Isa current_isa() { return chosen().load(std::memory_order_relaxed); }

void set_isa(Isa isa) {
  if (!is_supported(isa)) {
    throw OptionError(
        message("set_isa: this machine has no ", name_of(isa), "; its best is ", name_of(supported_isas().front())));
  }
  chosen().store(isa, std::memory_order_relaxed);
}

}  // namespace qkv
