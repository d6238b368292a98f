// attention/forward.cpp: the tasks of a call, and the merging of chunks.
#include "attention/forward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>
#include <vector>

#include "attention/block_loop.h"
#include "attention/finish.h"
#include "attention/mass.h"
#include "attention/selection.h"
#include "attention/workspace.h"
#include "base/carver.h"
#include "base/divide_up.h"
#include "base/numbers.h"
#include "base/parallel.h"

namespace qkv {
namespace {

// Below so many multiply-adds a second thread costs more than it brings: waking it takes some microseconds.
constexpr double worth_a_thread = 2e6;

// What a thread keeps from task to task and from call to call.
struct ThreadMemory {
  Scratch scratch;
  bool busy = false;
  // Whose tables of pairs are in the scratch.
  std::uint64_t call = 0;
  std::int64_t tables_of = -1;
};

// The thread's memory, or a fresh one where a function of the user's, called from a task, calls attend itself.
class Borrowed {
 public:
  Borrowed() : memory_(kept().busy ? own_ : kept()) { memory_.busy = true; }
  ~Borrowed() { memory_.busy = false; }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ThreadMemory* operator->() { return &memory_; }
  ThreadMemory& operator*() { return memory_; }

 private:
  static ThreadMemory& kept() {
    thread_local ThreadMemory memory;
    return memory;
  }
  ThreadMemory own_;
  ThreadMemory& memory_;
};

template <class T>
class Forward {
 public:
  Forward(const Problem& problem, const Strategy<T>& strategy, const Results& results)
      : problem_(problem), s_(strategy), results_(results) {
    static std::atomic<std::uint64_t> calls = 0;
    call_ = ++calls;
  }

  void run() {
    if (problem_.B == 0 || problem_.H == 0) return;
    clear_mass();
    if (problem_.Tq == 0) return;
    bytes_ = Workspace<T>(problem_, s_, nullptr).bytes;
    const int threads = useful_threads(problem_, s_, s_.tasks(problem_));
    if (s_.chunks == 1) {
      const std::int64_t runs = s_.runs();
      if (keeps_mass()) masses_.resize(static_cast<std::size_t>(problem_.B * problem_.H * runs * problem_.Tk));
      const std::int64_t tasks = problem_.B * s_.units * runs;
      if (threads == 1) {
        run_tasks(0, tasks, runs);
      } else {
        parallel_for(tasks, threads, [this, runs](std::int64_t i) { run_tasks(i, i + 1, runs); });
      }
      if (keeps_mass()) add_masses(runs);
      return;
    }
    const std::int64_t groups = problem_.B * s_.units * s_.groups;
    partial_ =
        static_cast<std::byte*>(partial_memory_.get(static_cast<std::size_t>(groups * s_.chunks) * partial_bytes()));
    parallel_for(groups * s_.chunks, threads, [this](std::int64_t i) { chunk_task(i / s_.chunks, i % s_.chunks); });
    parallel_for(groups, threads, [this](std::int64_t i) { merge_task(i); });
  }

  // Per group and chunk.
  std::size_t partial_bytes() const { return partial_layout(nullptr).bytes; }

 private:
  // Groups fastest, so that a head's keys and values stay in the cache from group to group; heads fastest where they
  // share a table of pairs.
  GroupOf group_of(std::int64_t i, std::int64_t groups) const {
    if (s_.share_pairs) return {i / (s_.units * groups), i % s_.units, i / s_.units % groups};
    return {i / (s_.units * groups), i / groups % s_.units, i % groups};
  }

  // Masses are kept while panels are pooled; decode finds them in a second pass.
  bool keeps_mass() const { return results_.mass && !s_.decode; }

  void clear_mass() const {
    const MutableView& mass = results_.mass;
    if (!mass) return;
    for (std::int64_t i = 0; i < problem_.B * problem_.H; ++i) {
      T* to = mass.as<T>() + i / problem_.H * mass.stride(0) + i % problem_.H * mass.stride(1);
      for (std::int64_t j = 0; j < problem_.Tk; ++j) to[j * mass.stride(2)] = 0;
    }
  }

  void run_tasks(std::int64_t first, std::int64_t last, std::int64_t runs) {
    Borrowed memory;
    Workspace<T> workspace(problem_, s_, static_cast<std::byte*>(memory->scratch.get(bytes_)));
    for (std::int64_t i = first; i < last; ++i) run_task(group_of(i, runs), runs, *memory, workspace);
  }

  // The groups of one run, one after the other.
  void run_task(const GroupOf& run, std::int64_t runs, ThreadMemory& memory, Workspace<T>& workspace) {
    Mass<T> mass(problem_, s_, workspace);
    if (keeps_mass()) mass.begin_run();
    const std::int64_t first = run.group * s_.run_groups, last = std::min(first + s_.run_groups, s_.groups);
    for (std::int64_t group = first; group < last; ++group) {
      whole_group({run.batch, run.unit, group}, memory, workspace, keeps_mass() ? &mass : nullptr);
    }
    if (keeps_mass()) {
      mass.end_run(masses_.data() + ((run.batch * problem_.H + run.unit) * runs + run.group) * problem_.Tk);
    }
  }

  void whole_group(const GroupOf& group, ThreadMemory& memory, Workspace<T>& workspace, Mass<T>* mass) {
    const std::int64_t tables_of = group.batch * s_.groups + group.group;
    const bool tables_valid = s_.share_pairs && memory.call == call_ && memory.tables_of == tables_of;
    const bool keeps_weights = mass != nullptr && problem_.weighing.family != Family::selection;
    BlockLoop<T> loop(problem_, s_, workspace, tables_valid);
    memory.call = 0;  // not valid if what follows throws
    loop.begin(group, {0, problem_.Tk});
    if (keeps_weights) mass->begin_group(static_cast<int>(loop.panels().size()));
    loop.pool_all(results_.out, keeps_weights ? mass : nullptr);
    Finish<T> finish(problem_, s_, results_, workspace);
    for (int p = 0; p < static_cast<int>(loop.panels().size()); ++p) {
      finish.write(
          {group.batch, loop.panels()[static_cast<std::size_t>(p)], loop.head(), loop.max(p), loop.sum(p),
           loop.entropy(p), loop.best(p, 0), loop.sums(p), s_.value_width(problem_), loop.started(p), loop.finished(p)},
          p, mass);
    }
    if (finish.needs_pairs()) {
      const auto count = static_cast<std::size_t>(s_.group_panels * s_.max_lanes);
      const std::vector<T> max(workspace.max, workspace.max + count), sum(workspace.sum, workspace.sum + count);
      return finish.write_pairs(group, max.data(), sum.data());
    }
    memory.call = call_;
    memory.tables_of = tables_of;
  }

  // The runs' masses, added up in their order.
  void add_masses(std::int64_t runs) const {
    const MutableView& mass = results_.mass;
    for (std::int64_t i = 0; i < problem_.B * problem_.H; ++i) {
      T* to = mass.as<T>() + i / problem_.H * mass.stride(0) + i % problem_.H * mass.stride(1);
      for (std::int64_t run = 0; run < runs; ++run) {
        const T* from = masses_.data() + (i * runs + run) * problem_.Tk;
        for (std::int64_t j = 0; j < problem_.Tk; ++j) to[j * mass.stride(2)] += from[j];
      }
    }
  }

  // What a chunk leaves of a group's panels; see Workspace. The arrays are as there, one after the other.
  struct Partial {
    T *max, *sum, *entropy, *sums, *best_scores;
    std::int64_t* best_indices;
    std::int32_t* best_counts;
    std::size_t bytes;
  };
  Partial partial_layout(std::byte* memory) const {
    const std::int64_t rows = s_.group_panels * s_.max_lanes, kept = problem_.weighing.kept;
    Carver carver(memory);
    Partial partial{};
    partial.max = carver.take<T>(rows);
    partial.sum = carver.take<T>(rows);
    partial.entropy = carver.take<T>(rows);
    partial.sums = carver.take<T>(s_.group_panels * s_.max_rows * s_.value_width(problem_));
    partial.best_scores = carver.take<T>(rows * kept);
    partial.best_indices = carver.take<std::int64_t>(rows * kept);
    partial.best_counts = carver.take<std::int32_t>(rows);
    partial.bytes = carver.bytes();
    return partial;
  }
  Partial partial(std::int64_t group, std::int64_t chunk) const {
    return partial_layout(partial_ + static_cast<std::size_t>(group * s_.chunks + chunk) * partial_bytes());
  }

  void chunk_task(std::int64_t index, std::int64_t chunk) {
    Borrowed memory;
    Workspace<T> w(problem_, s_, static_cast<std::byte*>(memory->scratch.get(bytes_)));
    BlockLoop<T> loop(problem_, s_, w);
    const std::int64_t first = chunk * s_.chunk_keys, rows = s_.group_panels * s_.max_lanes;
    loop.begin(group_of(index, s_.groups), {first, std::min(first + s_.chunk_keys, problem_.Tk)});
    loop.pool_all();
    for (int p = 0; p < static_cast<int>(loop.panels().size()); ++p) {
      if (!loop.started(p)) std::fill_n(loop.sums(p), w.panel_sums, T(0));
    }
    const Partial to = partial(index, chunk);
    std::copy_n(w.max, rows, to.max);
    std::copy_n(w.sum, rows, to.sum);
    std::copy_n(w.sums, s_.group_panels * w.panel_sums, to.sums);
    if (w.entropy != nullptr) std::copy_n(w.entropy, rows, to.entropy);
    if (problem_.weighing.kept > 0) {
      std::copy_n(w.best_scores, rows * problem_.weighing.kept, to.best_scores);
      std::copy_n(w.best_indices, rows * problem_.weighing.kept, to.best_indices);
      std::copy_n(w.best_counts, rows, to.best_counts);
    }
  }

  // The chunks of a group are merged, in their order, into the workspace.
  void merge_task(std::int64_t index) {
    const GroupOf group = group_of(index, s_.groups);
    Borrowed memory;
    Workspace<T> w(problem_, s_, static_cast<std::byte*>(memory->scratch.get(bytes_)));
    const std::int64_t lanes = s_.max_lanes, width = s_.value_width(problem_);
    const auto panels = s_.panels_of(group.group);
    const auto states = static_cast<std::size_t>(s_.group_panels * lanes);
    std::vector<T> max(states), sum(states), entropy(states);  // not the workspace's: write_pairs uses those
    Finish<T> finish(problem_, s_, results_, w);
    Selection<T> selection(problem_, s_, w);
    for (std::size_t p = 0; p < panels.size(); ++p) {
      const auto panel = static_cast<std::int64_t>(p);
      const T* row_entropy = w.entropy == nullptr ? nullptr : entropy.data() + panel * lanes;
      for (int r = 0; r < panels[p].rows(); ++r) {
        const std::int64_t at = panel * lanes + r;
        merge_row(index, at, panel * w.panel_sums + r * width, width,
                  {max.data() + at, sum.data() + at, entropy.data() + at, w.sums + r * width});
        if (problem_.weighing.kept > 0) merge_best(index, at, selection.row(static_cast<int>(p), r));
      }
      finish.write(
          {group.batch, panels[p], group.unit * s_.unit_heads, max.data() + panel * lanes, sum.data() + panel * lanes,
           row_entropy, selection.row(static_cast<int>(p), 0), w.sums, width, true},
          static_cast<int>(p), nullptr);
    }
    if (finish.needs_pairs()) finish.write_pairs(group, max.data(), sum.data());
  }

  struct RowState {
    T *max, *sum, *entropy, *sums;
  };

  // One row, whose numbers are at `at` in every chunk and whose sums are at sums_at. A chunk in which it saw
  // nothing has no part in it; the first in which it did is taken as it is.
  void merge_row(std::int64_t group, std::int64_t at, std::int64_t sums_at, std::int64_t width,
                 const RowState& to) const {
    constexpr T lowest = -infinity<T>;
    const bool exponential = problem_.weighing.family == Family::exponential;
    const bool entropies = problem_.want_entropy || problem_.want_effective;
    bool first = true;
    *to.max = lowest;
    *to.sum = *to.entropy = 0;
    std::fill_n(to.sums, width, T(0));
    if (problem_.weighing.family == Family::selection) return;
    for (std::int64_t chunk = 0; chunk < s_.chunks; ++chunk) {
      const Partial from = partial(group, chunk);
      const T chunk_max = from.max[at], chunk_sum = from.sum[at];
      const T chunk_entropy = entropies ? from.entropy[at] : T(0);
      const T* chunk_sums = from.sums + sums_at;
      // A NaN has no maximum and must come through.
      if (exponential && chunk_max == lowest && chunk_sum == T(0)) continue;
      if (first) {
        first = false;
        *to.max = chunk_max;
        *to.sum = chunk_sum;
        *to.entropy = chunk_entropy;
        std::copy_n(chunk_sums, width, to.sums);
        continue;
      }
      T mine = 1, theirs = 1;
      if (exponential) {
        const T now = std::max(*to.max, chunk_max);
        mine = std::exp2(*to.max - now);
        theirs = std::exp2(chunk_max - now);
        // Logarithms of weights are relative to the maximum, too.
        const auto moved = [now](T entropy, T sum, T max, T factor) {
          return factor == T(0) ? T(0) : (entropy + sum * (max - now)) * factor;
        };
        *to.entropy = moved(*to.entropy, *to.sum, *to.max, mine) + moved(chunk_entropy, chunk_sum, chunk_max, theirs);
        *to.max = now;
      } else {
        *to.entropy += chunk_entropy;
        *to.max += chunk_max;
      }
      *to.sum = *to.sum * mine + chunk_sum * theirs;
      for (std::int64_t c = 0; c < width; ++c) to.sums[c] = to.sums[c] * mine + chunk_sums[c] * theirs;
    }
  }

  void merge_best(std::int64_t group, std::int64_t at, RowBest<T> best) const {
    const std::int64_t kept = problem_.weighing.kept;
    *best.count = 0;
    for (std::int64_t chunk = 0; chunk < s_.chunks; ++chunk) {
      const Partial from = partial(group, chunk);
      if (from.best_counts[at] < 0) *best.count = -1;
      for (std::int32_t i = 0; i < from.best_counts[at]; ++i) {
        best.add(from.best_scores[at * kept + i], from.best_indices[at * kept + i]);
      }
    }
    best.sort();
  }

  const Problem& problem_;
  const Strategy<T>& s_;
  const Results& results_;
  std::uint64_t call_;
  std::size_t bytes_ = 0;
  Scratch partial_memory_;
  std::byte* partial_ = nullptr;
  std::vector<T> masses_;  // per head and run of groups: [B, H, runs, Tk]
};

}  // namespace

template <class T>
void forward(const Problem& problem, const Strategy<T>& strategy, const Results& results) {
  Forward<T>(problem, strategy, results).run();
}

template <class T>
int useful_threads(const Problem& problem, const Strategy<T>& strategy, std::int64_t tasks) {
  const double work = static_cast<double>(problem.B * problem.H) * static_cast<double>(problem.Tq) *
                      static_cast<double>(problem.Tk) *
                      static_cast<double>(strategy.scoring->usual.width + problem.Dv + 8);
  const auto worth = static_cast<std::int64_t>(std::min(work / worth_a_thread, 1e6));
  return static_cast<int>(std::clamp<std::int64_t>(std::min(worth, tasks), 1, problem.threads));
}

template <class T>
std::int64_t forward_bytes(const Problem& problem, const Strategy<T>& strategy, int threads) {
  const std::int64_t partial = strategy.chunks == 1
                                   ? 0
                                   : problem.B * strategy.units * strategy.groups * strategy.chunks *
                                         static_cast<std::int64_t>(Forward<T>(problem, strategy, {}).partial_bytes());
  const bool masses = problem.want_mass && !strategy.decode;
  const std::int64_t sums = masses ? problem.B * problem.H * strategy.runs() * problem.Tk : 0;
  return partial + sums * static_cast<std::int64_t>(sizeof(T)) +
         threads * static_cast<std::int64_t>(Workspace<T>(problem, strategy, nullptr).bytes);
}

template void forward(const Problem&, const Strategy<float>&, const Results&);
template void forward(const Problem&, const Strategy<double>&, const Results&);
template int useful_threads(const Problem&, const Strategy<float>&, std::int64_t);
template int useful_threads(const Problem&, const Strategy<double>&, std::int64_t);
template std::int64_t forward_bytes(const Problem&, const Strategy<float>&, int);
template std::int64_t forward_bytes(const Problem&, const Strategy<double>&, int);

}  // namespace qkv
