// tensor/half.h: float64 to half precision in one rounding; by way of float32 there would be two.
#pragma once

#include <qkv/dtype.h>

namespace qkv {

Float16 to_float16(double value);
BFloat16 to_bfloat16(double value);

}  // namespace qkv
