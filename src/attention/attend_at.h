// attention/attend_at.h: attend with a place for `out`, for ops, whose outputs lie as the next op takes them.
#pragma once

#include <qkv/attend.h>
#include <qkv/prepared.h>

namespace qkv {

// As attend, but `out` is written to the given place, any strides, and absent in the result.
Attended attend_at(View q, View k, View v, const MutableView& out, const AttendOptions& options);
Attended attend_at(View q, const Prepared& keys, const MutableView& out, const AttendOptions& options);

}  // namespace qkv
