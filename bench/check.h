// bench/check.h: no time without a right output.
#pragma once

#include <string>

#include <qkv/attend.h>
#include <qkv/tensor.h>

namespace qkv::bench {

// Compares some rows of every head of `out` (float32) with the double-precision reference, where |v| <= 1. Returns what
// is wrong, or nothing.
std::string check_attend(View q, View k, View v, const AttendOptions& options, View out);

// Compares some rows of c with a b, where |a|, |b| <= 1.
std::string check_gemm(View a, View b, View c);

}  // namespace qkv::bench
