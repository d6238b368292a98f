// apps/attend_options.cpp: what can be said to `qkv attend`.
#include "attend_options.h"

#include <limits>
#include <set>
#include <string>
#include <utility>

#include "attend_syntax.h"
#include "text_array.h"

namespace qkv::apps {
namespace {

using Path = AttendArguments::Path;

// Adds options to one group of the help.
class Group {
 public:
  Group(CLI::App& app, std::string name) : app_(app), name_(std::move(name)) {}

  CLI::Option* file(const std::string& name, Path& target, const std::string& help) {
    return titled(app_.add_option(name, target, help), "FILE");
  }

  template <class Target>
  CLI::Option* number(const std::string& name, Target& target, const std::string& help) {
    return titled(app_.add_option(name, target, help), "NUMBER");
  }

  // `set` gets the text and the name of the option.
  template <class Set>
  CLI::Option* text(const std::string& name, const Set& set, const std::string& title, const std::string& help) {
    return titled(app_.add_option_function<std::string>(
                      name, [set, name](const std::string& given) { set(given, name); }, help),
                  title);
  }

  template <class T, class Target>
  CLI::Option* choice(const std::string& name, Target& target, const Choices<T>& choices, const std::string& help) {
    return add_choice<T>(app_, name, target, choices, help)->group(name_);
  }

 private:
  CLI::Option* titled(CLI::Option* option, const std::string& title) {
    return option->option_text(title)->group(name_);
  }

  CLI::App& app_;
  const std::string name_;
};

void add_score(CLI::App& app, AttendArguments& given) {
  using Kind = Score::Kind;
  Group group(app, "Score (how well a key answers a query)");
  group
      .choice<Kind>("--score", given.score,
                    {{"dot", Kind::dot},
                     {"scaled_dot", Kind::scaled_dot},
                     {"cosine", Kind::cosine},
                     {"bilinear", Kind::bilinear},
                     {"additive", Kind::additive},
                     {"gaussian", Kind::gaussian},
                     {"laplace", Kind::laplace},
                     {"boxcar", Kind::boxcar},
                     {"triangular", Kind::triangular},
                     {"epanechnikov", Kind::epanechnikov},
                     {"constant", Kind::constant}},
                    "dot, scaled_dot (over sqrt(D); the default), cosine, bilinear, additive,\n"
                    "or a kernel: gaussian, laplace, boxcar, triangular, epanechnikov, constant")
      ->option_text("NAME");
  group.file("--matrix", given.matrix, "M of the bilinear score q M k: [Dq, Dk] or [H, Dq, Dk]");
  group.file("--wq", given.wq, "Wq of the additive score w tanh(Wq q + Wk k): [E, Dq] or [H, E, Dq]");
  group.file("--wk", given.wk, "Wk of it: [E, Dk] or [H, E, Dk]");
  group.file("--w", given.w, "w of it: [E] or [H, E]");
  group.text(
      "--bandwidth", [&given](const std::string& text, const std::string&) { set_bandwidth(given, text); },
      "NUMBER|FILE", "Kernels are about |q - k| / bandwidth (1). A file: [D] or [H, D], or 1 instead of D");
  group.number("--scale", given.options.scale, "Factor instead of the score's own");
  group.number("--softcap", given.options.softcap, "c: scores become c tanh(score / c)");
}

void add_masks(CLI::App& app, AttendArguments& given) {
  Group group(app, "Masks (which keys a query may see, what is added; any number together)");
  const auto add_pair = [&](const char* name, auto& target, const char* title, const char* help) {
    const auto set = [&target](const std::string& text, const std::string& option) {
      target = pair_of_numbers(text, option);
    };
    return group.text(name, set, title, help);
  };
  const auto add_alignment = [&](const char* name, auto& target, const char* title, const char* help) {
    const auto set = [&target](const std::string& text, const std::string& option) {
      target = alignment(text, option);
    };
    return group.text(name, set, title, help);
  };
  group.file("--lengths", given.lengths, "Valid lengths, int: [B] or [B, Tq]; keys from there on are not seen");
  add_alignment("--causal", given.causal, "[ALIGN]", "Query at position p sees keys j <= p; write it after the files")
      ->expected(0, 1);
  add_pair("--window", given.window, "LEFT,RIGHT", "Sees p - LEFT <= j <= p + RIGHT; -1 is no limit");
  group.file("--keep", given.keep, "True = may attend: bool, broadcast over [B, H, Tq, Tk]");
  group.file("--drop", given.drop, "True = may not attend: bool, likewise");
  group.file("--keep-keys", given.keep_keys, "True = this key may be attended: bool [B, Tk]");
  group.file("--bias", given.bias, "Added to the scores, broadcast likewise; -inf excludes");
  group.file("--alibi", given.alibi, "Adds -slope |p - j|: one slope per head, [H]");
  CLI::Option* cells =
      group.file("--block-mask", given.block_mask, "True = a cell of pairs may attend: bool [rows, columns]");
  CLI::Option* size =
      add_pair("--block-size", given.block_size, "QUERIES,KEYS", "How many queries and keys a cell has");
  cells->needs(size);
  size->needs(cells);
  add_alignment("--align", given.align, "ALIGN", "ALIGN for --window, --alibi and a bare --causal");
}

void add_weights(CLI::App& app, AttendArguments& given) {
  Group group(app, "Weights (what scores become)");
  AttendOptions& options = given.options;
  group.text(
      "--weigh",
      [&options](const std::string& text, const std::string& option) { options.weigh = weighing(text, option); },
      "NAME",
      "softmax (the default), normalize (scores or kernels over their sum), raw (as they are),\n"
      "hard (1 for the best key), uniform (1/m for all), top_k=N (softmax over the N best)");
  group.number("--minimum", given.minimum, "Score below which even the best key of --weigh hard is none");
  group.number("--temperature", options.temperature, "Divides the scores (1): the higher, the more even the weights");
  group.choice<OnEmpty>(
      "--on-empty", options.on_empty,
      {{"zero", OnEmpty::zero}, {"uniform", OnEmpty::uniform}, {"nan", OnEmpty::nan}, {"error", OnEmpty::error}},
      "What a query gets that may see no key (zero)");
  CLI::Option* dropout = group.number("--dropout", options.dropout,
                                      "Training: each weight becomes 0 with this probability, or else grows");
  CLI::Option* seed = group.text(
      "--seed",
      [&options](const std::string& text, const std::string& option) { options.seed = seed_of(text, option); },
      "NUMBER", "Whole number; it decides which weights are dropped");
  dropout->needs(seed);
  seed->needs(dropout);
  group.file("--sequence-ids", given.sequence_ids, "Ids, which decide it too: int [B] (the places in the batch)")
      ->needs(dropout);
}

void add_results(CLI::App& app, AttendArguments& given) {
  Group group(app, "Results (.npy files, or - to print)");
  group.file("-o,--out", given.out, "The answers [B, H, Tq, Dv]; printed if not said");
  group.file("--weights", given.weights, "The whole matrix of weights [B, H, Tq, Tk]");
  CLI::Option* row_weights =
      group.file("--row-weights", given.row_weights, "The weights of the queries that --rows names [B, H, R, Tk]");
  CLI::Option* rows = group.text(
      "--rows",
      [&given](const std::string& text, const std::string& option) { given.rows = whole_numbers(text, option); },
      "I,J,...", "Queries for --row-weights, counted from 0");
  rows->needs(row_weights);
  row_weights->needs(rows);
  CLI::Option* top =
      group.number("--top", given.options.want_top, "How many of the best keys --top-weights and --top-indices have")
          ->check(CLI::Range(std::int64_t{1}, std::numeric_limits<std::int64_t>::max()));
  group.file("--top-weights", given.top_weights, "The weights of each query's best keys [B, H, Tq, N]")->needs(top);
  group.file("--top-indices", given.top_indices, "Their places, int64; -1 where fewer are seen")->needs(top);
  group.file("--mass", given.mass, "What each key got from all queries together [B, H, Tk]");
  group.file("--lse", given.lse, "The log-sum-exp of each query's scores [B, H, Tq]");
  group.file("--entropy", given.entropy, "Of each query's weights, in nats [B, H, Tq]");
  group.file("--effective", given.effective, "The effective number of keys of each query, e^entropy [B, H, Tq]");
  CLI::Option* scores = group.file("--scores", given.scores, "The whole matrix of scores [B, H, Tq, Tk]");
  group
      .choice<ScoreStage>(
          "--scores-stage", given.stage,
          {{"scaled", ScoreStage::scaled}, {"capped", ScoreStage::capped}, {"biased", ScoreStage::biased}},
          "At which point the scores are taken (biased)")
      ->needs(scores);
  group.choice<Dtype>("--out-dtype", given.options.out_dtype,
                      {{"float16", Dtype::float16}, {"float32", Dtype::float32}, {"float64", Dtype::float64}},
                      "Of the answers (that of the queries)");
}

void require_score(const AttendArguments& given) {
  const bool is_bilinear = given.score == Score::Kind::bilinear, is_additive = given.score == Score::Kind::additive;
  const bool is_kernel = given.score >= Score::Kind::gaussian && given.score < Score::Kind::constant;
  const bool has_all = !given.wq.empty() && !given.wk.empty() && !given.w.empty();
  const bool has_any = !given.wq.empty() || !given.wk.empty() || !given.w.empty();
  if (is_bilinear && given.matrix.empty()) throw CLI::ValidationError("--score", "bilinear requires --matrix");
  if (is_additive && !has_all) throw CLI::ValidationError("--score", "additive requires --wq, --wk and --w");
  if (!is_bilinear && !given.matrix.empty()) throw CLI::ValidationError("--matrix", "requires --score bilinear");
  if (!is_additive && has_any) throw CLI::ValidationError("--wq, --wk, --w", "require --score additive");
  if (!is_kernel && (given.bandwidth || !given.bandwidths.empty())) {
    throw CLI::ValidationError("--bandwidth", "requires --score gaussian, laplace, boxcar, triangular or epanechnikov");
  }
}

void require_results(const AttendArguments& given) {
  if (given.options.want_top > 0 && given.top_weights.empty() && given.top_indices.empty()) {
    throw CLI::ValidationError("--top", "requires --top-weights or --top-indices");
  }
  std::set<Path> files;
  for (const AttendResult& result : attend_results) {
    const Path& path = given.*result.file;
    if (path.empty() || is_printed(path)) continue;
    if (is_text_file(path)) {
      throw CLI::ValidationError(result.option, "'" + path.string() + "' is no .npy file; - prints the result as text");
    }
    if (!files.insert(std::filesystem::absolute(path).lexically_normal()).second) {
      throw CLI::ValidationError(result.option, "two results cannot go to the same file " + path.string());
    }
  }
}

}  // namespace

void add_attend_options(CLI::App& app, AttendArguments& given) {
  app.add_option("q", given.q, "The queries")->required()->option_text("FILE");
  app.add_option("k", given.k, "The keys")->required()->option_text("FILE");
  app.add_option("v", given.v, "The values")->required()->option_text("FILE");
  add_score(app, given);
  add_masks(app, given);
  add_weights(app, given);
  add_results(app, given);
  app.add_option("--threads", given.options.threads, "At most so many (QKV_THREADS, or all processors)")
      ->check(CLI::Range(1, 1024))
      ->option_text("N");
  app.add_flag("--plan", given.only_plan, "Say what would run and do nothing");
}

void require_sense(const AttendArguments& given) {
  require_score(given);
  if (given.align && !given.causal && !given.window && given.alibi.empty()) {
    throw CLI::ValidationError("--align", "there is nothing to align without --causal, --window or --alibi");
  }
  if (given.minimum && given.options.weigh.kind != Weigh::Kind::hard) {
    throw CLI::ValidationError("--minimum", "requires --weigh hard");
  }
  require_results(given);
}

}  // namespace qkv::apps
