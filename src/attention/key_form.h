// attention/key_form.h: what a score makes of the keys before anybody asks.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/gemm.h>
#include <qkv/score.h>
#include <qkv/tensor.h>

#include "attention/form_tensor.h"
#include "attention/score_parameters.h"
#include "attention/visible.h"

namespace qkv {

// Which keys the loop reads, by score. With s = 1 / sigma where bandwidths differ by coordinate, and 1 elsewhere:
//
//   constant                           none
//   cosine                             k / |k|
//   gaussian                           [(k - c) s, -|(k - c) s|^2 / 2, 1], so that a dot product with
//                                      [(q - c) s, 1, -|(q - c) s|^2 / 2] is -|(q - k) s|^2 / 2; the centre c keeps
//                                      the terms small, which cancel where keys are far from the origin
//   additive                           e^(2 Wk k), or Wk k where that would overflow
//   all others                         as they are
struct FormedKeys {
  FormTensor keys;  // [B, heads, Tk, width]; absent where keys are taken as they are
  Tensor centres;   // gaussian: [B, heads, D]
  // Per (batch, head), of keys that are seen, infinite where one is not finite. gaussian: the largest |(k - c) s|^2.
  // additive: the largest |Wk k|.
  std::vector<double> largest;
};

// Keys with all that makes them and the queries ready.
struct KeyForm : FormedKeys {
  Score score;
  ScoreParameters parameters;
  Dtype compute = Dtype::float32;
  // One per query head, or one: bilinear's M, additive's Wq^T; additive's Wk^T.
  std::vector<PackedMatrix> query_matrices, key_matrices;
  std::int64_t heads = 0;  // Hk, or H where what is made of keys differs by query head
  View shown;              // the keys that are asked: these, or a cache's

  std::int64_t bytes() const;
  std::int64_t key_bytes() const;  // of what was computed from the keys: all but the parameters
};

// How large additive's projections may be to be held as exponentials: e^(2 |a|) e^(2 |b|), squared, must not overflow.
inline constexpr double largest_projection = 10.75;

// Whether the score makes keys of its own; if not, it takes them as they are.
bool makes_keys(const Score& score);

// k [B, Hk, Tk, Dk]; only the keys in `runs` are read (which is not looked at where keys are taken
// as they are). Throws what resolve_parameters throws.
KeyForm make_key_form(const View& k, const Score& score, Dtype compute, const VisibleRuns& runs, int threads,
                      const ScoreUse& use);

// What form's score makes of more keys of the same sequences, around these centres or, where none are given, around
// their own: what a cache appends.
FormedKeys form_keys(const KeyForm& form, const View& k, const View& centres, const VisibleRuns& runs, int threads);

}  // namespace qkv
