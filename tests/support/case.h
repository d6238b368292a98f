// support/case.h: what one attention problem asks for.
#pragma once

#include <cstdint>
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
// Those that can be named.
inline constexpr Alignment::Kind all_alignments[] = {Alignment::Kind::top_left, Alignment::Kind::bottom_right,
                                                     Alignment::Kind::offset, Alignment::Kind::offsets};
inline constexpr OnEmpty all_answers_to_empty[] = {OnEmpty::zero, OnEmpty::uniform, OnEmpty::nan};
inline constexpr ScoreStage all_score_stages[] = {ScoreStage::none, ScoreStage::scaled, ScoreStage::capped,
                                                  ScoreStage::biased};

inline constexpr Score::Kind all_score_kinds[] = {
    Score::Kind::dot,        Score::Kind::scaled_dot,   Score::Kind::cosine,   Score::Kind::bilinear,
    Score::Kind::additive,   Score::Kind::gaussian,     Score::Kind::laplace,  Score::Kind::boxcar,
    Score::Kind::triangular, Score::Kind::epanechnikov, Score::Kind::constant, Score::Kind::yours};
std::string_view score_name(Score::Kind kind);
bool is_kernel(Score::Kind kind);
// Whether queries and keys may differ in width.
bool takes_two_widths(Score::Kind kind);

// Every weighing, with numbers that make a difference at nine keys.
const std::vector<Weigh>& all_weighings();
std::string weigh_name(const Weigh& weigh);
// Softmax, normalize and top_k: those that have a log-sum-exp and an entropy.
bool has_log_sum(const Weigh& weigh);

// What a kernel's bandwidth is: one number, or an array of one of these shapes.
enum class Bandwidth : std::uint8_t { number, one, per_coordinate, per_head, per_head_and_coordinate };
inline constexpr Bandwidth all_bandwidths[] = {Bandwidth::number, Bandwidth::one, Bandwidth::per_coordinate,
                                               Bandwidth::per_head, Bandwidth::per_head_and_coordinate};

// What is asked for. The data follows from it and the seed.
struct Case {
  std::int64_t B = 2, H = 2, Hk = 2, Tq = 6, Tk = 9, D = 5, Dv = 3;
  Dtype q = Dtype::float32, k = Dtype::float32, v = Dtype::float32;
  std::optional<Dtype> out = {};
  Layout layout = Layout::dense;  // of the keys and values; queries have one where no element is shared
  std::vector<MaskKind> masks = {};
  Alignment::Kind alignment = Alignment::Kind::bottom_right;  // named by the first part that has one
  double softcap = 0;                                         // kernels refuse it and do not get it
  std::optional<double> scale = {};
  OnEmpty on_empty = OnEmpty::zero;
  bool want_lse = true, want_weights = false;  // what the weighing refuses it does not get
  ScoreStage want_scores = ScoreStage::none;
  int threads = 1;
  double magnitude = 1;  // of queries: 100 makes scores of about 100
  std::uint64_t seed = 1;

  Score::Kind score = Score::Kind::scaled_dot;
  std::optional<std::int64_t> Dk = {};   // the width of keys, of a score that takes two
  std::int64_t E = 6;                    // additive
  bool parameters_per_head = false;      // M, Wq, Wk, w
  std::optional<Dtype> parameters = {};  // their dtype and that of bandwidths; that of the computation if not said
  Bandwidth bandwidth = Bandwidth::number;
  Weigh weigh = softmax();
  double temperature = 1;
  double dropout = 0;  // in training, with the case's seed
  std::vector<std::int64_t> want_rows = {};
  bool want_mass = false, want_entropy = false, want_effective = false, want_partial = false;
  std::int64_t want_top = 0;

  std::string text() const;
};

// Asks for every statistic at once.
Case with_all_statistics(Case c);

}  // namespace qkv::test
