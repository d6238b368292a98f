// gradients/check.h: whether attend_backward gives the derivatives of attend.
#pragma once

#include <string>
#include <vector>

#include <qkv/attend_backward.h>

#include "support/problem.h"

namespace qkv::test {

// A number made of all that attend gives: random weights of outputs and, where there are any, of log-sum-exps and
// entropies. Its derivatives are compared.
class Loss {
 public:
  Loss(const Problem& problem, std::uint64_t seed = 7);

  double value() const;
  AttendGradients gradients(const AttendWanted& wanted) const;

 private:
  const Problem& problem_;
  AttendOptions options_;
  Tensor out_, lse_, entropy_;  // the weights
};

// A gradient and the memory of what it is the gradient of.
struct Derivative {
  std::string name;
  MutableView of;
  View gradient;
};
// Of q, k, v and all that the score carries.
std::vector<Derivative> derivatives(const Problem& problem, const AttendGradients& gradients);

// Against central differences, element by element.
void expect_differences(const Loss& loss, const std::vector<Derivative>& derivatives);
// The same along random directions, all elements of each array at once.
void expect_directions(const Loss& loss, const std::vector<Derivative>& derivatives, int directions = 3);

// A case that is computed in double precision.
Case in_double(Case c);
// The weighing of a case is put in place after its data was made, without ties among scores.
Problem without_ties(Case c);

inline constexpr AttendWanted all_of_score = {.score = true};

}  // namespace qkv::test
