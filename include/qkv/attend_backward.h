// qkv/attend_backward.h: the gradients of attend, in the same memory and without the weights.
#pragma once

#include <vector>

#include <qkv/attend.h>
#include <qkv/export.h>
#include <qkv/prepared.h>
#include <qkv/tensor.h>

namespace qkv {

// The gradients of some number with respect to what attend gave, in the shapes of Attended; absent is zero.
struct AttendUpstream {
  View out = {};
  View lse = {};      // where the answer has its log-sum-exp
  View entropy = {};  // where the answer has its entropy
};

// What the backward pass needs of the forward one: of an answer that was given with options.want_backward.
struct AttendAnswer {
  View out, state, index, chosen, entropy;  // as in Attended
  PartialState state_kind = PartialState::none;

  AttendAnswer() = default;
  AttendAnswer(const Attended& answer)
      : out(answer.out),
        state(answer.state),
        index(answer.index),
        chosen(answer.chosen),
        entropy(answer.entropy),
        state_kind(answer.state_kind) {}
};

// Which gradients are computed. What is not asked for is absent, and its work is not done.
struct AttendWanted {
  bool q = true, k = true, v = true;
  bool score = false;  // what the score carries: M; Wq, Wk and w; sigma
  bool scale = false, softcap = false;
  bool bias = false, slopes = false;  // of the mask
};

// The gradients, dense, in the shapes of what they are of and in the dtype of the computation.
struct AttendGradients {
  Tensor dq, dk, dv;
  Tensor dmatrix;                                        // bilinear: of M
  Tensor dquery_weights, dkey_weights, dhidden_weights;  // additive: of Wq, Wk, w
  Tensor dbandwidths;                                    // kernels: of sigma; [1] where it is one number
  Tensor dscale, dsoftcap;                               // []
  std::vector<Tensor> dbias;                             // one per bias of the mask, in their order
  Tensor dslopes;                                        // [H], of the slopes of ALiBi
  Tensor dprojections;                                   // of prepared keys, see below
};

// `answer` is what attend gave for the same arguments with options.want_backward: its output and the few numbers a
// query that weights are recomputed from. Nothing of size Tq * Tk is stored, unless a bias is that large.
//
// Formulas: SEMANTICS.md, S21. Dropout falls on the same weights again. A query that may see no key gives and gets
// exactly 0, whatever on_empty says. hard gives gradients to the values it chose, uniform to values, boxcar to values;
// at a kink, as where q = k for laplace, a gradient is 0. What the mask excludes is not read and gets 0.
// The result is the same, bit for bit, for any number of threads.
//
// Functions of your own need their derivative: score_by(f, df), edit_by(f, df). There are no gradients of gradients.
// Throws ShapeError, OptionError, DtypeError.
QKV_API AttendGradients attend_backward(View q, View k, View v, const AttendAnswer& answer,
                                        const AttendUpstream& upstream, const AttendOptions& options = {},
                                        const AttendWanted& wanted = {});

// The same with dq, dk and dv in the caller's memory, which is overwritten or added to: the dtype of the computation,
// any strides but the last axis dense; no two of them overlap. Those that are absent are returned, if they are wanted.
struct AttendGradientsInto {
  MutableView dq = {}, dk = {}, dv = {};
  bool add_dq = false, add_dk = false, add_dv = false;
};
QKV_API AttendGradients attend_backward_into(View q, View k, View v, const AttendAnswer& answer,
                                             const AttendUpstream& upstream, const AttendGradientsInto& into,
                                             const AttendOptions& options = {}, const AttendWanted& wanted = {});

// For an answer of prepared keys. The additive score's gradients end at the keys' projections: in the place of dk and
// of dkey_weights there is dprojections, of projections_shape(keys), so that many asks can gather them (add_dk) and
// prepare_backward goes the rest of the way once. Of other scores dk is as above.
QKV_API AttendGradients attend_backward_into(View q, const Prepared& keys, const AttendAnswer& answer,
                                             const AttendUpstream& upstream, const AttendGradientsInto& into,
                                             const AttendOptions& options = {}, const AttendWanted& wanted = {});

// [B, heads, Tk, E], with heads = H where a parameter of the score differs by head and Hk elsewhere. [] where the score
// is not additive.
QKV_API Shape projections_shape(const Prepared& keys);

struct PrepareGradients {
  Tensor dk, dkey_weights;
};
// Of an additive score's keys (wanted.k) and Wk (wanted.score), from the gradients of its projections. Keys whose
// projections have a gradient of 0 are not read. Throws OptionError where the score is not additive, ShapeError.
QKV_API PrepareGradients prepare_backward(const Prepared& keys, View dprojections, const AttendWanted& wanted = {});

}  // namespace qkv
