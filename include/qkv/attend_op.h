// qkv/attend_op.h: attention on the tape.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <qkv/attend.h>
#include <qkv/autograd.h>
#include <qkv/export.h>
#include <qkv/prepared.h>

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

// How many heads, and how wide each of them, stand side by side in variables, as a projection of all heads gives them.
struct HeadLayout {
  std::int64_t heads = 1, key_heads = 1;                         // H, Hk
  std::int64_t query_width = 0, key_width = 0, value_width = 0;  // Dq, Dk (both D for most scores), Dv
};

// attend on heads that stand side by side. Nothing is moved, forward or backward: heads are views of the variables, and
// the answers of all heads come side by side too. All else is as above.
//
//   q    [B, Tq, H * Dq]
//   k    [B, Tk, Hk * Dk]
//   v    [B, Tk, Hk * Dv]
//   out  [B, Tq, H * Dv]
//
// Without v, k has keys and values: [B, Tk, Hk * Dk + Hk * Dv]. Without both, q has queries, keys and values, in this
// order: what one matrix product made of one input.
QKV_API AttendedVariables attend_heads(const AttendVariables& variables, const HeadLayout& layout,
                                       const AttendOptions& options = {});

// Keys and values on the tape, made ready for one score (qkv/prepared.h). Cheap to copy: copies share.
//
// It is one node: asks gather their gradients of keys and values here, and only when all have does backward go on,
// once, through what the score made of the keys. A decoder that asks thirty times pays for one projection and one
// gradient of it.
class QKV_API PreparedVariables {
 public:
  PreparedVariables() = default;
  const Prepared& prepared() const { return prepared_; }

 private:
  PreparedVariables(const char* op, const AttendVariables& variables, const std::optional<HeadLayout>& layout,
                    const Score& score, View valid_lens);
  friend QKV_API PreparedVariables prepare(const AttendVariables& variables, const Score& score, View valid_lens);
  friend QKV_API PreparedVariables prepare_heads(const AttendVariables& variables, const HeadLayout& layout,
                                                 const Score& score, View valid_lens);
  friend QKV_API AttendedVariables attend(const AttendVariables& ask, const PreparedVariables& keys,
                                          const AttendOptions& options);
  AttendVariables given_, asked_;  // asked_.k is what the asks' gradients of keys are given to
  std::optional<HeadLayout> layout_;
  Prepared prepared_;
};

// Takes k, v and what the score carries. The others must be absent: they are the asks'. Throws as prepare does, and
// OptionError. valid_lens must live until backward has run.
QKV_API PreparedVariables prepare(const AttendVariables& variables, const Score& score = scaled_dot(),
                                  View valid_lens = {});
// The same for heads that stand side by side, as attend_heads takes them; those of the asks' queries and of their
// answers do too.
QKV_API PreparedVariables prepare_heads(const AttendVariables& variables, const HeadLayout& layout,
                                        const Score& score = scaled_dot(), View valid_lens = {});
// An ask: q and, where they need gradients, scale, softcap, biases and slopes; the others must be absent. options.score
// must be left as it is.
QKV_API AttendedVariables attend(const AttendVariables& ask, const PreparedVariables& keys,
                                 const AttendOptions& options = {});

}  // namespace qkv
