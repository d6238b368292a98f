// attention/centre.h: rows about a centre, so that what is multiplied is small where keys are far from the origin.
#pragma once

#include <cstdint>

#include <qkv/tensor.h>

#include "attention/problem.h"
#include "attention/visible.h"

namespace qkv {

// A key of each key head that is finite and seen, or the origin: [B, Hk, D].
template <class T>
Tensor some_keys(const Problem& problem, const VisibleRuns& runs);

// [x - c, 1] for rows of a view [B, heads, T, D], `group` heads of which share a centre. Of keys, only those in `runs`
// are read, and the others are zeros; null: all.
template <class T>
Tensor about_centre(const View& x, const View& centres, std::int64_t group, const VisibleRuns* runs);

}  // namespace qkv
