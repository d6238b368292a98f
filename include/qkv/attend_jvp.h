// qkv/attend_jvp.h: how fast the answer of attend changes when its inputs do: forward-mode derivatives, fused.
#pragma once

#include <vector>

#include <qkv/attend.h>
#include <qkv/attend_backward.h>
#include <qkv/export.h>
#include <qkv/tensor.h>

namespace qkv {

// The direction in which inputs change, each in the shape of what it is of and of a dtype it goes with; absent is not
// at all.
struct AttendTangents {
  View q = {}, k = {}, v = {};
  std::vector<View> bias = {};  // one per bias of the mask, in their order, absent or not; none at all is all absent
};

// d/dt of the answer at q + t dq, k + t dk, ..., in the shapes of Attended and the dtype of the computation.
struct AttendRates {
  Tensor out;
  Tensor lse;  // where options.want_lse asks for it
};

// `answer` is what attend gave for the same arguments with options.want_backward. One more pass over the pairs, in
// O(Tq + Tk) memory; dropout falls on the same weights; what the mask excludes is not read, in the tangents neither; a
// query that may see no key does not change.
//
// For softmax, normalize and raw, and scores that are smooth: dot, scaled_dot, cosine, bilinear, additive, gaussian and
// constant. edit_by needs its derivative, edit_by(f, df). All else is refused with OptionError. Throws ShapeError,
// DtypeError too.
QKV_API AttendRates attend_jvp(View q, View k, View v, const AttendAnswer& answer, const AttendTangents& tangents,
                               const AttendOptions& options = {});

}  // namespace qkv
