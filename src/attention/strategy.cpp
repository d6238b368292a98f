// attention/strategy.cpp: the choice between panels and decode, and the cutting.
#include "attention/strategy.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/divide_up.h"
#include "kernels/processor.h"

namespace qkv {
namespace {

// At most so many queries take the decode kernel. A panel of one vector wastes the lanes beyond Tq; at 4 of 8 both
// kernels are equal when keys and values come from the cache, and decode is ahead when they come from memory.
constexpr std::int64_t decode_queries = 4;

// Keys of one decode task: enough for long streams, few enough that one sequence keeps several threads busy.
constexpr std::int64_t decode_chunk = 4096;

// So many tasks keep a thread busy to the end even where they differ, as with a causal mask.
constexpr std::int64_t tasks_per_thread = 4;

// From so many panels that read them on, rows that are far apart are copied.
constexpr std::int64_t worth_a_copy = 4;

// Where a panel sees so few keys, they are one part of a block that is so many times as long as others, as a rule: a
// part has its own way through weigh and pool (a window of 257 keys is 3 % faster at D = 64). Keys and values that are
// wider, together, would not leave enough of the second-level cache to others (a window of 256 keys is 1 % slower at D
// = 128).
constexpr std::int64_t few_keys = 320;
constexpr std::int64_t narrow = 160;
constexpr int times_as_long = 3;

// The tables of pairs that heads share are [rows of a group, Tk]: beyond so many keys, of half as many rows.
constexpr std::int64_t long_rows = 8192;

// From how many times the second-level cache on tables of pairs are asked for ahead. Zen 5, 1 MB, a bias at D = 64: a
// fifth faster with 8 MB (T = 4096), the same with 4 and less.
constexpr double far = 4;

// Runs of groups per head, each with its own sums of the weights of all keys, where those are asked for.
constexpr std::int64_t max_mass_runs = 16;

constexpr int storage_index(Dtype dtype) { return dtype == Dtype::float16 ? 1 : dtype == Dtype::bfloat16 ? 2 : 0; }

// Tq queries as panels of max_vectors vectors, the last ones narrower: two of two vectors are better than three and
// one.
std::vector<Panel> query_panels(std::int64_t Tq, int vector, int max_vectors) {
  std::vector<Panel> panels;
  std::int64_t vectors = divide_up(Tq, vector), first = 0;
  panels.reserve(static_cast<std::size_t>(divide_up(vectors, max_vectors)) + 1);
  while (vectors > 0) {
    const std::int64_t taken =
        vectors == max_vectors + 1 ? divide_up(vectors, 2) : std::min<std::int64_t>(vectors, max_vectors);
    const int lanes = static_cast<int>(taken) * vector;
    const int queries = static_cast<int>(std::min<std::int64_t>(lanes, Tq - first));
    panels.push_back({0, first, 1, queries, lanes});
    first += queries;
    vectors -= taken;
  }
  return panels;
}

// The query heads of one key head, with all their queries, as panels of up to decode_rows rows.
std::vector<Panel> head_panels(std::int64_t heads, std::int64_t Tq) {
  std::vector<Panel> panels;
  const std::int64_t at_once = std::max<std::int64_t>(1, kernels::decode_rows / Tq);
  for (std::int64_t first = 0; first < heads; first += at_once) {
    const int count = static_cast<int>(std::min(at_once, heads - first));
    const int rows = count * static_cast<int>(Tq);
    panels.push_back(
        {first, 0, count, static_cast<int>(Tq), static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows)))});
  }
  return panels;
}

// Panels of a group in the forward pass. The more there are, the more rarely values are copied; half of them where that
// many would leave threads without work, or where much is kept for each of them. Outputs do not depend on it; the sums
// of weights do, which are kept per group, and may not depend on the threads.
int forward_panels(const Problem& problem, bool much_kept, std::int64_t panels, int most) {
  const std::int64_t tasks = problem.B * problem.H * divide_up(panels, most);
  const bool few_tasks = problem.threads > 1 && tasks < tasks_per_thread * problem.threads;
  return much_kept || few_tasks ? most / 2 : most;
}

// Whether panels take rows of keys or values as they lie. Rows that are far apart, as those of one head among others
// are, fall on a few sets of the first-level cache and throw each other out: where several panels read them, they are
// copied (a point and a half of the peak of a layer of 12 heads of 32).
bool as_they_lie(const View& rows, Dtype compute, std::int64_t panels) {
  const bool apart = rows.stride(2) > 2 * rows.extent(3);
  return rows.stride(3) == 1 && rows.dtype() == compute && !(apart && panels >= worth_a_copy);
}

template <class T>
typename Strategy<T>::Way kernel_of(const ScoreWay& way, const Strategy<T>& s, const Problem& problem, Isa isa,
                                    Pass pass) {
  const bool decode = s.decode;
  const bool direct = as_they_lie(way.k, problem.compute, std::ssize(s.panels));
  if (way.kind == ScoreWay::Kind::dot) {
    if (!decode) {
      const auto score = kernels::panel_kernels<T>(isa).score;
      return {&way, direct, score, score};
    }
    const auto& scores = kernels::decode_kernels<T>(isa).score;
    return {&way, way.k.stride(3) == 1, scores[storage_index(way.k.dtype())], scores[0]};
  }
  const bool additive = way.kind == ScoreWay::Kind::additive || way.kind == ScoreWay::Kind::additive_direct;
  const bool by_rows = pass == Pass::backward && additive && problem.Tq <= decode_queries;
  const auto& kernels =
      decode || by_rows ? kernels::decode_score_kernels<T>(isa) : kernels::panel_score_kernels<T>(isa);
  const auto kernel = way.kind == ScoreWay::Kind::additive          ? kernels.additive
                      : way.kind == ScoreWay::Kind::additive_direct ? kernels.additive_direct
                      : way.kind == ScoreWay::Kind::distance        ? kernels.distance
                                                                    : nullptr;
  return {&way, direct, kernel, kernel, by_rows};
}

// The score of a dot product by panels excludes by bits, a thirtieth of what numbers would be, if nothing comes
// between.
template <class T>
bool takes_bits(const Problem& problem, const Strategy<T>& s) {
  const auto by_dot = [](const typename Strategy<T>::Way& way) {
    return way.score == nullptr || way.score->kind == ScoreWay::Kind::dot;
  };
  return !s.decode && by_dot(s.usual) && by_dot(s.exact) && !problem.edits_scores() &&
         !problem.weighing.exclusion_only && problem.weighing.family != Family::linear;
}

}  // namespace

template <class T>
Strategy<T> choose_strategy(const Problem& problem, const Scoring& scoring, Pass pass) {
  Strategy<T> s{};
  const Isa isa = current_isa();
  s.scoring = &scoring;
  s.weighs = &kernels::weigh_kernels<T>(isa);
  s.best = &kernels::best_kernels<T>(isa);
  s.panel = &kernels::panel_kernels<T>(isa);
  s.edits = &kernels::edit_kernels<T>(isa);
  s.rows = &kernels::row_kernels<T>(isa);
  const auto& panel = *s.panel;
  s.gradients = &kernels::gradient_kernels<T>(isa);
  s.decode = problem.Tq > 0 && problem.Tq <= decode_queries && pass == Pass::forward;
  s.vector = panel.vector;
  if (s.decode) {
    const auto& decode = kernels::decode_kernels<T>(isa);
    s.block_keys = kernels::decode_keys;
    s.chunk_keys = decode_chunk;
    // Heads that share keys, values and all else that scores them are compared together.
    s.unit_heads = scoring.heads_differ() || scoring.usual.key_group != problem.group ? 1 : problem.group;
    s.units = problem.H / s.unit_heads;
    s.panels = head_panels(s.unit_heads, problem.Tq);
    s.values_direct = problem.v.stride(3) == 1;
    s.pool = decode.pool[storage_index(problem.v.dtype())];
    s.pool_staged = decode.pool[0];
    s.weigh = decode.weigh;
  } else {
    s.block_keys = pass == Pass::forward ? panel.block_keys : s.gradients->block_keys;
    s.chunk_keys = std::max<std::int64_t>(problem.Tk, 1);
    s.units = problem.H;
    s.unit_heads = 1;
    if (pass == Pass::forward && problem.Dk + problem.Dv <= narrow &&
        problem.mask.window_keys() + panel.vector * panel.max_vectors <= few_keys) {
      s.block_keys *= times_as_long;
    }
    s.panels = query_panels(problem.Tq, panel.vector, panel.max_vectors);
    s.values_direct = as_they_lie(problem.v, problem.compute, std::ssize(s.panels));
    s.pool = s.pool_staged = panel.pool;
    s.weigh = panel.weigh;
  }
  s.usual = kernel_of<T>(scoring.usual, s, problem, isa, pass);
  if (!scoring.needs_exact.empty()) s.exact = kernel_of<T>(scoring.exact, s, problem, isa, pass);
  // A block that is one cell of a block mask is skipped or seen whole.
  for (const ResolvedMask::Cells& cells : problem.mask.cells()) {
    if (cells.keys >= 32 && cells.keys < s.block_keys) s.block_keys = static_cast<int>(cells.keys);
  }
  s.max_lanes = s.vector;
  for (const Panel& p : s.panels) {
    s.max_lanes = std::max(s.max_lanes, p.lanes);
    s.max_rows = std::max(s.max_rows, p.rows());
  }
  // Keys and values that are half of the second-level cache stay there.
  const double bytes = static_cast<double>(problem.B * problem.Hk) * static_cast<double>(problem.Tk) *
                       static_cast<double>(problem.Dk + problem.Dv) * sizeof(T);
  s.hints = !s.decode && bytes > static_cast<double>(kernels::second_level_cache()) / 2;
  s.share_pairs = !s.decode && problem.mask.has_pairs() && !problem.mask.pairs_vary_by_head() && problem.H > 1;
  s.pair_bits = takes_bits(problem, s);
  s.pair_numbers = !s.pair_bits || std::ranges::any_of(problem.mask.dense(), [](const ResolvedMask::Dense& part) {
    return part.kind == ResolvedMask::Dense::Kind::bias;
  });
  const bool long_tables = s.share_pairs && s.pair_numbers && problem.Tk > long_rows;
  const bool much_kept = s.decode || long_tables || problem.want_mass;
  s.group_panels = pass == Pass::forward ? forward_panels(problem, much_kept, std::ssize(s.panels), panel.group_panels)
                                         : s.gradients->group_panels;
  s.far_tables = s.share_pairs && s.pair_numbers &&
                 static_cast<double>(s.group_panels * s.max_lanes) * static_cast<double>(problem.Tk) * sizeof(T) >
                     far * static_cast<double>(kernels::second_level_cache());
  s.groups = divide_up(static_cast<std::int64_t>(s.panels.size()), s.group_panels);
  s.run_groups = problem.want_mass ? divide_up(std::max<std::int64_t>(s.groups, 1), max_mass_runs) : 1;
  s.chunks = divide_up(std::max<std::int64_t>(problem.Tk, 1), s.chunk_keys);
  return s;
}

template Strategy<float> choose_strategy<float>(const Problem&, const Scoring&, Pass);
template Strategy<double> choose_strategy<double>(const Problem&, const Scoring&, Pass);

}  // namespace qkv
