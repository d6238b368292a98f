// attention/visible.cpp: finds the keys that any query may see.
#include "attention/visible.h"

#include <algorithm>
#include <memory>

#include "attention/pairs.h"
#include "base/aligned.h"
#include "kernels/block.h"

namespace qkv {
namespace {

constexpr int rows_at_once = 16;
constexpr int keys_at_once = 256;

// One bit a key, for the queries of one head.
class Seen {
 public:
  explicit Seen(const Problem& problem) : problem_(problem), flags_(static_cast<std::size_t>(problem.Tk)) {}

  void clear() { std::fill(flags_.begin(), flags_.end(), std::uint8_t{0}); }

  // By the ranges of the mask alone.
  void add_ranges(std::int64_t batch) {
    std::vector<std::int64_t> opened(flags_.size() + 1, 0);
    for (std::int64_t i = 0; i < problem_.Tq; ++i) {
      const KeyRange range = problem_.mask.range(batch, i);
      if (range.first >= range.last) continue;
      ++opened[static_cast<std::size_t>(range.first)];
      --opened[static_cast<std::size_t>(range.last)];
    }
    std::int64_t open = 0;
    for (std::size_t j = 0; j < flags_.size(); ++j) {
      open += opened[j];
      flags_[j] |= open > 0;
    }
  }

  // By what the mask says pair by pair, and its ranges. Blocks of keys of which all have been seen are left out: as a
  // rule the first queries see all.
  void add_pairs(std::int64_t batch, std::int64_t head) {
    const auto& kernels = kernels::panel_kernels<float>(current_isa());
    constexpr std::size_t pairs = rows_at_once * keys_at_once;
    Scratch scratch;  // aligned, as kernels want it
    auto* rows = static_cast<float*>(scratch.get((2 * pairs + keys_at_once) * sizeof(float)));
    float *target = rows + pairs, *seen = target + pairs;
    const auto kept = std::make_unique<bool[]>(pairs);
    std::int64_t first[rows_at_once], last[rows_at_once];
    for (std::int64_t query = 0; query < problem_.Tq; query += rows_at_once) {
      const int count = static_cast<int>(std::min<std::int64_t>(rows_at_once, problem_.Tq - query));
      for (int r = 0; r < count; ++r) {
        const KeyRange range = problem_.mask.range(batch, query + r);
        first[r] = range.first;
        last[r] = std::max(range.first, range.last);
      }
      const Panel panel{0, query, 1, count, rows_at_once};
      for (std::int64_t key = 0; key < problem_.Tk; key += keys_at_once) {
        const int keys = static_cast<int>(std::min<std::int64_t>(keys_at_once, problem_.Tk - key));
        const auto flags = flags_.begin() + key;
        if (std::find(flags, flags + keys, 0) == flags + keys) continue;
        const PairTable table =
            fill_pairs<float>(problem_, {panel, batch, head, first, last}, key, keys,
                              {kernels, rows, keys_at_once, kept.get(), 1.0f}, {target, nullptr, seen});
        if (table.state == PairState::none) continue;
        for (int j = 0; j < keys; ++j) flags[j] |= seen[j] == 0.0f;
      }
    }
  }

  std::vector<KeyRange> runs() const {
    std::vector<KeyRange> runs;
    const auto end = flags_.end();
    for (auto at = std::find(flags_.begin(), end, 1); at != end;) {
      const auto stop = std::find(at, end, 0);
      runs.push_back({at - flags_.begin(), stop - flags_.begin()});
      at = std::find(stop, end, 1);
    }
    return runs;
  }

 private:
  const Problem& problem_;
  std::vector<std::uint8_t> flags_;
};

}  // namespace

VisibleRuns all_visible(std::int64_t B, std::int64_t Hk, std::int64_t Tk) {
  return VisibleRuns(static_cast<std::size_t>(B * Hk), Tk > 0 ? std::vector{KeyRange{0, Tk}} : std::vector<KeyRange>());
}

VisibleRuns visible_runs(const Problem& problem) {
  const ResolvedMask& mask = problem.mask;
  if (!mask.has_ranges() && !mask.has_pairs()) return all_visible(problem.B, problem.Hk, problem.Tk);
  VisibleRuns runs;
  runs.reserve(static_cast<std::size_t>(problem.B * problem.Hk));
  Seen seen(problem);
  for (std::int64_t b = 0; b < problem.B; ++b) {
    for (std::int64_t h = 0; h < problem.Hk; ++h) {
      if (h > 0 && !(mask.has_pairs() && mask.pairs_vary_by_head())) {
        runs.push_back(runs.back());
        continue;
      }
      seen.clear();
      if (!mask.has_pairs()) seen.add_ranges(b);
      for (std::int64_t i = 0; mask.has_pairs() && i < (mask.pairs_vary_by_head() ? problem.group : 1); ++i) {
        seen.add_pairs(b, h * problem.group + i);
      }
      runs.push_back(seen.runs());
    }
  }
  return runs;
}

void for_each_row(std::int64_t heads, std::int64_t count, const VisibleRuns* runs,
                  FunctionRef<void(std::int64_t, std::int64_t)> each) {
  const std::vector<KeyRange> all = {{0, count}};
  for (std::int64_t i = 0; i < heads; ++i) {
    for (const KeyRange& run : runs == nullptr ? all : (*runs)[static_cast<std::size_t>(i)]) {
      for (std::int64_t j = run.first; j < run.last; ++j) each(i, j);
    }
  }
}

}  // namespace qkv
