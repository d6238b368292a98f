// apps/attend_options.h: what can be said to `qkv attend`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include <qkv/attend.h>

#include "command.h"

namespace qkv::apps {

struct AttendArguments {
  using Path = std::filesystem::path;  // empty: not given

  struct Pair {
    std::int64_t first = 0, second = 0;
  };

  // ALIGN in the help.
  struct Align {
    Alignment alignment;  // complete, unless there is a file
    Path offsets;
  };

  Path q, k, v;
  // Score
  Score::Kind score = Score::Kind::scaled_dot;
  Path matrix, wq, wk, w, bandwidths;
  std::optional<double> bandwidth;
  // Masks
  Path lengths, keep, drop, keep_keys, bias, alibi, block_mask;
  std::optional<Align> causal, align;
  std::optional<Pair> window, block_size;
  // Weights
  std::optional<double> minimum;
  Path sequence_ids;
  // Results
  Path out, lse, weights, row_weights, scores, mass, top_weights, top_indices, entropy, effective;
  std::vector<std::int64_t> rows;
  ScoreStage stage = ScoreStage::biased;

  AttendOptions options;  // what is neither read from files nor in need of a second look
  bool only_plan = false;
};

// A file that means the standard output.
inline bool is_printed(const AttendArguments::Path& path) { return path == "-"; }

// The results, in the order in which they are written.
struct AttendResult {
  const char* option;
  AttendArguments::Path AttendArguments::*file;
  Tensor Attended::*array;
};
inline constexpr AttendResult attend_results[] = {
    {"--out", &AttendArguments::out, &Attended::out},
    {"--weights", &AttendArguments::weights, &Attended::weights},
    {"--row-weights", &AttendArguments::row_weights, &Attended::row_weights},
    {"--top-weights", &AttendArguments::top_weights, &Attended::top_weights},
    {"--top-indices", &AttendArguments::top_indices, &Attended::top_indices},
    {"--mass", &AttendArguments::mass, &Attended::mass},
    {"--lse", &AttendArguments::lse, &Attended::lse},
    {"--entropy", &AttendArguments::entropy, &Attended::entropy},
    {"--effective", &AttendArguments::effective, &Attended::effective},
    {"--scores", &AttendArguments::scores, &Attended::scores},
};

void add_attend_options(CLI::App& app, AttendArguments& given);

// Throws CLI::ParseError where options do not go together. What attend itself refuses is left to it.
void require_sense(const AttendArguments& given);

}  // namespace qkv::apps
