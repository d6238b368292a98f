// qkv/merge.h: partial answers over disjoint sets of keys become the answer over all of them.
#pragma once

#include <span>

#include <qkv/attend.h>
#include <qkv/export.h>

namespace qkv {

// Merges answers of the same queries over disjoint keys, each made with want_partial, the same score, mask parts,
// weighing and temperature. Exact up to rounding:
//
//   softmax, and kernels under normalize   (out, log-sum-exp)
//   other scores under normalize           (out, sum)
//   raw                                    (out)
//   uniform                                (out, count)
//   hard                                   (out, score, index); among equal scores the first part's. first_keys[p] is
//                                          added to part p's indices, so that they count through all keys.
//
// The part of a query that saw none of a part's keys is (0, -inf), (0, 0) or (0, -inf, -1), and merging such parts
// gives such a part. top_k cannot be merged, nor can answers that were given for empty rows: attend with want_partial
// wants OnEmpty::zero, and no dropout. The result has `out`, `state` and `index` like its parts, and may be merged
// again; with log-sums it has `lse` too. NaN comes through. first_keys is empty (all 0) or has one number per part.
// Throws ShapeError, OptionError, DtypeError.
QKV_API Attended merge(std::span<const Attended> parts, std::span<const std::int64_t> first_keys = {});

}  // namespace qkv
