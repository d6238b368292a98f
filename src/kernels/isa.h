// kernels/isa.h: choosing among the copies of a kernel that were compiled for different instruction sets.
#pragma once

#include <hwy/highway.h>

#include <qkv/isa.h>

namespace qkv::kernels {

template <class Table>
const Table& pick(Isa isa, const Table& baseline, const Table& avx2, const Table& avx512) {
  switch (isa) {
    case Isa::avx512:
      return avx512;
    case Isa::avx2:
      return avx2;
    case Isa::baseline:
      break;
  }
  return baseline;
}

}  // namespace qkv::kernels

// An instruction set's copy, or the current one's, of something that every target's namespace has. A target that this
// build does not have stands in for itself with the baseline; supported_isas() does not offer it.
#if HWY_TARGETS & HWY_AVX2
#define QKV_OF_AVX2(name) N_AVX2::name
#else
#define QKV_OF_AVX2(name) HWY_STATIC_DISPATCH(name)
#endif
#if HWY_TARGETS & HWY_AVX3
#define QKV_OF_AVX3(name) N_AVX3::name
#else
#define QKV_OF_AVX3(name) HWY_STATIC_DISPATCH(name)
#endif
#define QKV_PICK_FOR(isa, name) pick(isa, HWY_STATIC_DISPATCH(name), QKV_OF_AVX2(name), QKV_OF_AVX3(name))
#define QKV_PICK(name) QKV_PICK_FOR(current_isa(), name)
