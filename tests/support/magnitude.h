// support/magnitude.h: the size of the numbers that are rounded on the way to a score.
#pragma once

#include <vector>

#include <qkv/attend.h>

namespace qkv::test {

// The largest absolute finite number; 0 where there is none.
double largest_finite(const std::vector<double>& all);

// How large the numbers are that a score is made of: an error of one rounding of a score is one rounding of this.
// Near the edge of a compact kernel, ln kappa is ill-conditioned; that comes on top, see pair_magnitudes.
double score_magnitude(const View& q, const View& k, const AttendOptions& options);

// What comes on top for each pair, [B, H, Tq, Tk]: 1 / kappa, the slope of ln kappa, for triangular and Epanechnikov
// kernels; all 0 for other scores.
std::vector<double> pair_magnitudes(const View& q, const View& k, const AttendOptions& options);

}  // namespace qkv::test
