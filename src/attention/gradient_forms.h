// attention/gradient_forms.h: the way back from what a score compares to queries, keys and what the score carries.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/attend_backward.h>

#include "attention/backward.h"
#include "attention/problem.h"
#include "attention/scoring.h"

namespace qkv {

// Sets the ways' product widths: gradients of queries and keys are sums of such rows of keys and queries.
//
//   dot       what is compared; gaussian's has a 1 in each row, so that the sums of slopes come along
//   additive  the projections, whose gradients the additive kernel finds itself
//   distance  [x - c, 1], with c a key: the distances' ways get copies of their queries and keys about a centre,
//             because sum_j h (q - k) = q (sum_j h) - sum_j h k cancels where keys are far from the origin
void prepare_products(const Problem& problem, Scoring& scoring);

// How many heads of keys have gradients of their own on the way: Hk, or H where what is made of keys differs by head.
std::int64_t gradient_key_heads(const Problem& problem, const Scoring& scoring);

// Whether dq and dk of the products are those of queries and keys, but for a factor.
bool takes_queries_as_they_are(const Score& score);

// From gradients of what is compared to those that are wanted.
struct ProductsToFinish {
  const Problem& problem;
  const Scoring& scoring;
  MutableView dq_made, dk_made;  // [B, H, Tq, width], [B, key heads, Tk, width]; used up. dk_made: absent where
                                 // projections of keys are gathered
  MutableView dq, dk;            // where those of queries and keys are added; absent: not wanted
  const std::vector<PairSums>& sums;
  double factor;  // of these sums
  const AttendWanted& wanted;
  AttendGradients& to;  // all others
};
void finish_gradients(const ProductsToFinish& products);

}  // namespace qkv
