// qkv/attend_op.h: attention on the tape.
#pragma once

#include <vector>

#include <qkv/attend.h>
#include <qkv/autograd.h>
#include <qkv/export.h>

namespace qkv {

// What attention is computed from, where it may need gradients. Absent ones are taken from the options.
struct AttendVariables {
  Variable q, k, v;
  // Take the place of what options.score carries; its kind is taken from there.
  Variable matrix = {};                                                // bilinear: M
  Variable query_weights = {}, key_weights = {}, hidden_weights = {};  // additive: Wq, Wk, w
  Variable bandwidths = {};                                            // kernels: sigma
  Variable scale = {}, softcap = {};                                   // one number each, of rank 0
  // For each bias of options.mask, in their order, the variable whose value it shows, or an absent one; none at all is
  // all absent. Likewise the slopes of its one ALiBi part.
  std::vector<Variable> biases = {};
  Variable slopes = {};
};

// Only `out` is always there; the others where options.want_lse and want_entropy ask for them.
struct AttendedVariables {
  Variable out, lse, entropy;
};

// attend, recorded: the gradients are those of attend_backward, with dropout on the same weights. What the mask, the
// options and your functions borrow must live until backward has run. Statistics without a gradient are for attend.
// Throws as attend does, and OptionError where a bias or the slopes are not those of the mask.
QKV_API AttendedVariables attend(const AttendVariables& variables, const AttendOptions& options = {});
QKV_API Variable attend(const Variable& q, const Variable& k, const Variable& v, const AttendOptions& options = {});

}  // namespace qkv
