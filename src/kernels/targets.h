// kernels/targets.h: the instruction sets that every kernel is compiled for. Include before <hwy/foreach_target.h>.
//
// Three: the compiler's baseline, AVX2 and AVX-512. Every further one costs build time and size, and no machine in use
// would choose it.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
