// apps/attend.cpp: `qkv attend`: attention from .npy files to .npy files.
#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <qkv/attend.h>
#include <qkv/error.h>
#include <qkv/npy.h>

#include "command.h"

namespace qkv::apps {
namespace {

namespace fs = std::filesystem;

struct Pair {
  std::int64_t first = 0, second = 0;
};

// ALIGN in the help.
struct AlignmentArgument {
  Alignment alignment;  // complete, unless there is a file
  fs::path offsets;
};

struct Arguments {
  fs::path q, k, v, out;
  fs::path lengths, keep, drop, keep_keys, bias, alibi, block_mask;  // empty: not given
  fs::path weights, lse, scores;
  std::optional<AlignmentArgument> causal, align;
  std::optional<Pair> window, block_size;
  ScoreStage stage = ScoreStage::biased;
  AttendOptions options;
  bool only_plan = false;
};

std::int64_t whole_number(std::string_view text, const std::string& option) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw CLI::ValidationError(option, "'" + std::string(text) + "' is not a whole number");
  }
  return number;
}

// "128,0"
Pair pair_of_numbers(const std::string& text, const std::string& option) {
  const std::size_t comma = text.find(',');
  if (comma == std::string::npos) {
    throw CLI::ValidationError(option, "'" + text + "' should be two whole numbers with a comma between them");
  }
  const std::string_view view = text;
  return {whole_number(view.substr(0, comma), option), whole_number(view.substr(comma + 1), option)};
}

CLI::Option* add_pair(CLI::App& app, const std::string& name, std::optional<Pair>& target, const std::string& help) {
  const auto set = [&target, name](const std::string& text) { target = pair_of_numbers(text, name); };
  return app.add_option_function<std::string>(name, set, help);
}

AlignmentArgument alignment_argument(const std::string& text, const std::string& option) {
  constexpr std::string_view number = "offset=", file = "offsets=";
  if (text.empty()) return {};  // a bare --causal
  if (text == "top_left") return {top_left(), {}};
  if (text == "bottom_right") return {bottom_right(), {}};
  if (text.starts_with(number)) {
    return {offset(whole_number(std::string_view(text).substr(number.size()), option)), {}};
  }
  if (text.starts_with(file) && text.size() > file.size()) return {{}, text.substr(file.size())};
  throw CLI::ValidationError(option, "'" + text + "' is none of top_left, bottom_right, offset=N, offsets=FILE");
}

CLI::Option* add_alignment(CLI::App& app, const std::string& name, std::optional<AlignmentArgument>& target,
                           const std::string& help) {
  const auto set = [&target, name](const std::string& text) { target = alignment_argument(text, name); };
  return app.add_option_function<std::string>(name, set, help);
}

// Reads the arrays that a mask borrows, and keeps them for as long as the mask is used.
class MaskReader {
 public:
  explicit MaskReader(const Arguments& given) {
    if (!given.lengths.empty()) mask_ &= lengths(array(given.lengths));
    if (!given.keep.empty()) mask_ &= keep(array(given.keep));
    if (!given.drop.empty()) mask_ &= drop(array(given.drop));
    if (!given.keep_keys.empty()) mask_ &= keep_keys(array(given.keep_keys));
    if (!given.bias.empty()) mask_ &= bias(array(given.bias));
    if (!given.block_mask.empty()) {
      mask_ &= block_mask(array(given.block_mask), given.block_size->first, given.block_size->second);
    }
    const Alignment shared = given.align ? alignment(*given.align) : Alignment();
    if (given.causal) {
      const Alignment own = alignment(*given.causal);
      mask_ &= causal(own.kind == Alignment::Kind::unnamed ? shared : own);
    }
    if (given.window) mask_ &= window(given.window->first, given.window->second, shared);
    if (!given.alibi.empty()) mask_ &= alibi(array(given.alibi), shared);
  }

  const Mask& mask() const { return mask_; }

 private:
  View array(const fs::path& path) { return arrays_.emplace_back(read_npy(path)); }

  Alignment alignment(const AlignmentArgument& argument) {
    return argument.offsets.empty() ? argument.alignment : offset(array(argument.offsets));
  }

  std::vector<Tensor> arrays_;  // views of them stay valid when this grows: moving a tensor does not move its elements
  Mask mask_;
};

void require_sense(const Arguments& given) {
  if (given.align && !given.causal && !given.window && given.alibi.empty()) {
    throw CLI::ValidationError("--align", "there is nothing to align without --causal, --window or --alibi");
  }
  if (given.out.empty() && !given.only_plan) throw CLI::RequiredError("-o");
  std::set<fs::path> results;
  for (const fs::path& path : {given.out, given.weights, given.lse, given.scores}) {
    if (!path.empty() && !results.insert(fs::absolute(path).lexically_normal()).second) {
      throw CLI::ValidationError("-o, --weights, --lse, --scores",
                                 "two results cannot go to the same file " + path.string());
    }
  }
}

void write_all(const std::vector<std::pair<fs::path, View>>& results) {
  std::string written;
  for (const auto& [path, array] : results) {
    if (path.empty()) continue;
    try {
      write_npy(path, array);
    } catch (const Error& error) {
      if (written.empty()) throw;
      throw FileError(std::string(error.what()) + " (already written:" + written + ")");
    }
    written += " " + path.string();
  }
}

void print_plan(const Plan& plan) {
  std::cout << "kernel   " << plan.kernel << ": " << plan.why << "\n"
            << "isa      " << plan.isa << "\n"
            << "panel    " << plan.panel << " queries\n"
            << "block    " << plan.block << " keys\n"
            << "tasks    " << plan.tasks << "\n"
            << "threads  " << plan.threads << "\n"
            << "memory   " << plan.peak_bytes << " bytes besides inputs and results\n";
}

int run(Arguments& given) {
  require_sense(given);
  const Tensor q = read_npy(given.q), k = read_npy(given.k), v = read_npy(given.v);
  const MaskReader mask(given);
  AttendOptions& options = given.options;
  options.mask = mask.mask();
  options.want_lse = !given.lse.empty();
  options.want_weights = !given.weights.empty();
  options.want_scores = given.scores.empty() ? ScoreStage::none : given.stage;
  if (given.only_plan) {
    print_plan(plan(q, k, v, options));
    return 0;
  }
  const Attended attended = attend(q, k, v, options);
  write_all({{given.out, attended.out},
             {given.lse, attended.lse},
             {given.weights, attended.weights},
             {given.scores, attended.scores}});
  return 0;
}

constexpr const char* examples =
    R"(Arrays are .npy files. q [B, H, Tq, D], k [B, Hk, Tk, D], v [B, Hk, Tk, Dv] (Hk divides H); rank 3 is [B, T, D],
rank 2 is [T, D]. float32, float16 and float64. Nothing is written before everything has been computed.

ALIGN says where query i stands among the keys, at position p: top_left is p = i; bottom_right puts the last query at
the last key (of its length); offset=N is p = i + N; offsets=FILE has one offset per sequence, [B]. With as many
queries as keys it need not be said.

Examples:
  qkv attend q.npy k.npy v.npy -o out.npy
  qkv attend q.npy k.npy v.npy -o out.npy --lengths lens.npy --weights w.npy
  qkv attend q.npy k.npy v.npy -o out.npy --causal bottom_right --window 128,0 --alibi slopes.npy
  qkv attend q.npy k.npy v.npy -o out.npy --keep mask.npy --on-empty uniform --lse lse.npy
  qkv attend q.npy k.npy v.npy --causal top_left --plan)";

void add_masks(CLI::App& app, Arguments& given) {
  const auto grouped = [](CLI::Option* option) { return option->group("Masks (any number together)"); };
  const auto file = [&](const char* name, fs::path& target, const char* help) {
    return grouped(app.add_option(name, target, help))->option_text("FILE");
  };
  file("--lengths", given.lengths, "Valid lengths, int: [B] or [B, Tq]; keys from there on are not seen");
  grouped(
      add_alignment(app, "--causal", given.causal, "Query at position p sees keys j <= p; write it after the files"))
      ->expected(0, 1)
      ->option_text("[ALIGN]");
  grouped(add_pair(app, "--window", given.window, "Sees p - LEFT <= j <= p + RIGHT; -1 is no limit"))
      ->option_text("LEFT,RIGHT");
  file("--keep", given.keep, "True = may attend: bool, broadcast over [B, H, Tq, Tk]");
  file("--drop", given.drop, "True = may not attend: bool, likewise");
  file("--keep-keys", given.keep_keys, "True = this key may be attended: bool [B, Tk]");
  file("--bias", given.bias, "Added to the scores, broadcast likewise; -inf excludes");
  file("--alibi", given.alibi, "Adds -slope |p - j|: one slope per head, [H]");
  CLI::Option* cells =
      file("--block-mask", given.block_mask, "True = a cell of pairs may attend: bool [rows, columns]");
  CLI::Option* size = grouped(add_pair(app, "--block-size", given.block_size, "How many queries and keys a cell has"))
                          ->option_text("QUERIES,KEYS");
  cells->needs(size);
  size->needs(cells);
  grouped(add_alignment(app, "--align", given.align, "ALIGN for --window, --alibi and a bare --causal"))
      ->option_text("ALIGN");
}

void add_scores(CLI::App& app, Arguments& given) {
  const std::string group = "Scores and weights";
  AttendOptions& options = given.options;
  add_choice<Score>(app, "--score", options.score, {{"dot", dot()}, {"scaled_dot", scaled_dot()}},
                    "How well a key answers (scaled_dot: divided by sqrt(D), the default)")
      ->group(group);
  app.add_option("--scale", options.scale, "Factor instead of the score's own")->option_text("NUMBER")->group(group);
  app.add_option("--softcap", options.softcap, "c: scores become c tanh(score / c)")
      ->option_text("NUMBER")
      ->group(group);
  add_choice<OnEmpty>(
      app, "--on-empty", options.on_empty,
      {{"zero", OnEmpty::zero}, {"uniform", OnEmpty::uniform}, {"nan", OnEmpty::nan}, {"error", OnEmpty::error}},
      "What a query gets that may see no key (zero)")
      ->group(group);
}

void add_results(CLI::App& app, Arguments& given) {
  const std::string group = "Results";
  const auto file = [&](const char* name, fs::path& target, const char* help) {
    return app.add_option(name, target, help)->option_text("FILE")->group(group);
  };
  file("-o,--out", given.out, "The answers [B, H, Tq, Dv]; required unless --plan is given");
  file("--weights", given.weights, "The whole matrix of weights [B, H, Tq, Tk]");
  file("--lse", given.lse, "The log-sum-exp of each query's scores [B, H, Tq]");
  CLI::Option* scores = file("--scores", given.scores, "The whole matrix of scores [B, H, Tq, Tk]");
  add_choice<ScoreStage>(
      app, "--scores-stage", given.stage,
      {{"scaled", ScoreStage::scaled}, {"capped", ScoreStage::capped}, {"biased", ScoreStage::biased}},
      "At which point the scores are taken (biased)")
      ->needs(scores)
      ->group(group);
  add_choice<Dtype>(app, "--out-dtype", given.options.out_dtype,
                    {{"float16", Dtype::float16}, {"float32", Dtype::float32}, {"float64", Dtype::float64}},
                    "Of the answers (that of the queries)")
      ->group(group);
}

}  // namespace

Command attend_command(CLI::App& qkv) {
  CLI::App& app = *qkv.add_subcommand("attend", "Attention from .npy files to .npy files");
  const auto given = std::make_shared<Arguments>();
  app.add_option("q", given->q, "The queries")->required()->option_text("FILE");
  app.add_option("k", given->k, "The keys")->required()->option_text("FILE");
  app.add_option("v", given->v, "The values")->required()->option_text("FILE");
  add_results(app, *given);
  add_masks(app, *given);
  add_scores(app, *given);
  app.add_option("--threads", given->options.threads, "At most so many (QKV_THREADS, or all processors)")
      ->check(CLI::Range(1, 1024))
      ->option_text("N");
  app.add_flag("--plan", given->only_plan, "Say what would run and do nothing");
  app.footer(examples);
  return {&app, [given] { return run(*given); }};
}

}  // namespace qkv::apps
