// support/problem.h: one attention problem: what is asked for, the data for it, and whether the answer is right.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <qkv/attend.h>

#include "support/layout.h"

namespace qkv::test {

enum class MaskKind : std::uint8_t {
  lengths,
  query_lengths,
  causal,
  window,
  keep,
  drop,
  keep_keys,
  bias,
  alibi,
  block_mask,
  keep_by,
  edit_by,
};
inline constexpr MaskKind all_mask_kinds[] = {MaskKind::lengths,    MaskKind::query_lengths, MaskKind::causal,
                                              MaskKind::window,     MaskKind::keep,          MaskKind::drop,
                                              MaskKind::keep_keys,  MaskKind::bias,          MaskKind::alibi,
                                              MaskKind::block_mask, MaskKind::keep_by,       MaskKind::edit_by};
std::string_view name_of(MaskKind kind);
// Whether this part is about the position of a query among the keys, so that it has an alignment.
bool is_positional(MaskKind kind);

// What is asked for. The data follows from it and the seed.
struct Case {
  std::int64_t B = 2, H = 2, Hk = 2, Tq = 6, Tk = 9, D = 5, Dv = 3;
  Dtype q = Dtype::float32, k = Dtype::float32, v = Dtype::float32;
  std::optional<Dtype> out = {};
  Layout layout = Layout::dense;  // of the keys and values; queries have one where no element is shared
  std::vector<MaskKind> masks = {};
  Alignment::Kind alignment = Alignment::Kind::bottom_right;  // named by the first part that has one
  double softcap = 0;
  std::optional<double> scale = {};
  OnEmpty on_empty = OnEmpty::zero;
  bool want_lse = true, want_weights = false;
  ScoreStage want_scores = ScoreStage::none;
  int threads = 1;
  double magnitude = 1;  // of queries: 100 makes scores of about 100
  std::uint64_t seed = 1;

  std::string text() const;
};

// The data of a case. Owns all memory that the options borrow.
class Problem {
 public:
  explicit Problem(const Case& c);

  MutableView q() const { return q_->view(); }
  MutableView k() const { return k_->view(); }
  MutableView v() const { return v_->view(); }
  const AttendOptions& options() const { return options_; }
  AttendOptions& options() { return options_; }

 private:
  Mask part(MaskKind kind);
  Alignment next_alignment();
  // Keeps an array alive as long as the problem.
  View hold(Tensor tensor);

  Case case_;
  std::uint64_t seed_;
  bool alignment_is_named_ = false;
  std::unique_ptr<LaidOut> q_, k_, v_;
  std::vector<Tensor> held_;
  AttendOptions options_;
};

// Attend gives what the reference gives: all that was asked for, in the promised shapes and dtypes.
void expect_right(const View& q, const View& k, const View& v, const AttendOptions& options);
void expect_right(const Problem& problem);
void expect_right(const Case& c);

}  // namespace qkv::test
