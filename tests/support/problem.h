// support/problem.h: one attention problem: the data for what is asked for, and whether the answer is right.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <qkv/attend.h>

#include "support/case.h"
#include "support/layout.h"

namespace qkv::test {

// The data of a case. Owns all memory that the options borrow.
//
// Data is chosen so that what is asked for can be computed: scores to be divided by their sum are positive, so that
// the sum is not near 0; the edge of a compact kernel lies in the widest gap between distances, so that no pair is in
// doubt; and where the largest scores are picked, some keys are twins, so that exact ties occur.
class Problem {
 public:
  explicit Problem(const Case& c);

  MutableView q() const { return q_->view(); }
  MutableView k() const { return k_->view(); }
  MutableView v() const { return v_->view(); }
  const AttendOptions& options() const { return options_; }
  AttendOptions& options() { return options_; }

 private:
  Score score();
  Score kernel();
  View parameter(std::vector<std::int64_t> extents, double scale);
  Mask part(MaskKind kind);
  Alignment next_alignment();
  // Keeps an array alive as long as the problem.
  View hold(Tensor tensor);

  Case case_;
  std::uint64_t seed_;
  bool alignment_is_named_ = false;
  std::unique_ptr<LaidOut> q_, k_, v_;
  std::vector<Tensor> held_;
  AttendOptions options_;
};

// Attend gives what the reference gives: all that was asked for, in the promised shapes and dtypes.
void expect_right(const View& q, const View& k, const View& v, const AttendOptions& options);
void expect_right(const Problem& problem);
void expect_right(const Case& c);
// The same for an answer that came some other way.
void expect_right(const Attended& got, const View& q, const View& k, const View& v, const AttendOptions& options);

}  // namespace qkv::test
