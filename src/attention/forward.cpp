// attention/forward.cpp: the tasks of a call, and the merging of chunks.
#include "attention/forward.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "attention/block_loop.h"
#include "attention/finish.h"
#include "attention/workspace.h"
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
    if (problem_.B == 0 || problem_.H == 0 || problem_.Tq == 0) return;
    bytes_ = Workspace<T>(problem_, s_, nullptr).bytes();
    const int threads = useful_threads(problem_, s_);
    if (s_.chunks == 1) {
      parallel_for(s_.tasks(problem_), threads, [this](std::int64_t i) { whole_task(group_of(i)); });
      return;
    }
    const std::int64_t groups = problem_.B * s_.units * s_.groups;
    partial_ =
        static_cast<T*>(partial_memory_.get(static_cast<std::size_t>(groups * s_.chunks * partial_size()) * sizeof(T)));
    parallel_for(groups * s_.chunks, threads, [this](std::int64_t i) { chunk_task(i / s_.chunks, i % s_.chunks); });
    parallel_for(groups, threads, [this](std::int64_t i) { merge_task(i); });
  }

  // Per group and chunk: every panel's max, sum and sums.
  std::int64_t partial_size() const {
    return s_.group_panels * (2 * s_.max_lanes + s_.max_rows * s_.value_width(problem_));
  }

 private:
  // Groups fastest, so that a head's keys and values stay in the cache from group to group; heads fastest where they
  // share a table of pairs.
  GroupOf group_of(std::int64_t i) const {
    if (s_.share_pairs) return {i / (s_.units * s_.groups), i % s_.units, i / s_.units % s_.groups};
    return {i / (s_.units * s_.groups), i / s_.groups % s_.units, i % s_.groups};
  }

  void whole_task(const GroupOf& group) {
    Borrowed memory;
    Workspace<T> workspace(problem_, s_, static_cast<std::byte*>(memory->scratch.get(bytes_)));
    const std::int64_t tables_of = group.batch * s_.groups + group.group;
    const bool tables_valid = s_.share_pairs && memory->call == call_ && memory->tables_of == tables_of;
    BlockLoop<T> loop(problem_, s_, workspace, tables_valid);
    memory->call = 0;  // not valid if what follows throws
    loop.begin(group, {0, problem_.Tk});
    loop.pool_all(results_.out);
    Finish<T> finish(problem_, s_, results_, workspace);
    for (int p = 0; p < static_cast<int>(loop.panels().size()); ++p) {
      finish.write({group, loop.panels()[static_cast<std::size_t>(p)], loop.head(), loop.max(p), loop.sum(p),
                    loop.sums(p), s_.value_width(problem_), loop.started(p), loop.finished(p)});
    }
    if (results_.weights || results_.scores) {
      const auto count = static_cast<std::size_t>(s_.group_panels * s_.max_lanes);
      const std::vector<T> max(workspace.max, workspace.max + count), sum(workspace.sum, workspace.sum + count);
      return finish.write_pairs(group, max.data(), sum.data());
    }
    memory->call = call_;
    memory->tables_of = tables_of;
  }

  // What a chunk leaves of a group's panels; see Workspace.
  struct Partial {
    T *max, *sum, *sums;
  };
  Partial partial(std::int64_t group, std::int64_t chunk) const {
    T* max = partial_ + (group * s_.chunks + chunk) * partial_size();
    T* sum = max + s_.group_panels * s_.max_lanes;
    return {max, sum, sum + s_.group_panels * s_.max_lanes};
  }

  void chunk_task(std::int64_t index, std::int64_t chunk) {
    Borrowed memory;
    Workspace<T> workspace(problem_, s_, static_cast<std::byte*>(memory->scratch.get(bytes_)));
    BlockLoop<T> loop(problem_, s_, workspace);
    const std::int64_t first = chunk * s_.chunk_keys;
    loop.begin(group_of(index), {first, std::min(first + s_.chunk_keys, problem_.Tk)});
    loop.pool_all();
    const Partial to = partial(index, chunk);
    std::copy_n(workspace.max, s_.group_panels * s_.max_lanes, to.max);
    std::copy_n(workspace.sum, s_.group_panels * s_.max_lanes, to.sum);
    std::copy_n(workspace.sums, s_.group_panels * workspace.panel_sums, to.sums);
  }

  // The chunks of a group are merged, in their order, into the workspace.
  void merge_task(std::int64_t index) {
    const GroupOf group = group_of(index);
    Borrowed memory;
    Workspace<T> w(problem_, s_, static_cast<std::byte*>(memory->scratch.get(bytes_)));
    const std::int64_t lanes = s_.max_lanes, width = s_.value_width(problem_);
    const auto panels = std::span(s_.panels).subspan(static_cast<std::size_t>(group.group * s_.group_panels));
    const auto count = std::min(panels.size(), static_cast<std::size_t>(s_.group_panels));
    const auto states = static_cast<std::size_t>(s_.group_panels * lanes);
    std::vector<T> max(states), sum(states);  // not the workspace's: write_pairs uses those
    Finish<T> finish(problem_, s_, results_, w);
    for (std::size_t p = 0; p < count; ++p) {
      const auto panel = static_cast<std::int64_t>(p);
      for (int r = 0; r < panels[p].rows(); ++r) {
        merge_row(index, panel * lanes + r, panel * w.panel_sums + r * width, width,
                  {max.data() + panel * lanes + r, sum.data() + panel * lanes + r, w.sums + r * width});
      }
      finish.write({group, panels[p], group.unit * s_.unit_heads, max.data() + panel * lanes,
                    sum.data() + panel * lanes, w.sums, width, true});
    }
    if (results_.weights || results_.scores) finish.write_pairs(group, max.data(), sum.data());
  }

  // One row, whose max and sum are at `at` in every chunk and whose sums are at sums_at. A chunk in which it saw
  // nothing has no part in it; the first in which it did is taken as it is.
  void merge_row(std::int64_t group, std::int64_t at, std::int64_t sums_at, std::int64_t width,
                 const Partial& to) const {
    constexpr T lowest = -std::numeric_limits<T>::infinity();
    bool first = true;
    *to.max = lowest;
    *to.sum = 0;
    for (std::int64_t chunk = 0; chunk < s_.chunks; ++chunk) {
      const Partial from = partial(group, chunk);
      const T chunk_max = from.max[at], chunk_sum = from.sum[at];
      const T* chunk_sums = from.sums + sums_at;
      if (chunk_max == lowest && chunk_sum == T(0)) continue;  // a NaN has no maximum and must come through
      if (first) {
        first = false;
        *to.max = chunk_max;
        *to.sum = chunk_sum;
        std::copy_n(chunk_sums, width, to.sums);
        continue;
      }
      const T now = std::max(*to.max, chunk_max);
      const T mine = std::exp2(*to.max - now), theirs = std::exp2(chunk_max - now);
      *to.max = now;
      *to.sum = *to.sum * mine + chunk_sum * theirs;
      for (std::int64_t c = 0; c < width; ++c) to.sums[c] = to.sums[c] * mine + chunk_sums[c] * theirs;
    }
  }

  const Problem& problem_;
  const Strategy<T>& s_;
  const Results& results_;
  std::uint64_t call_;
  std::size_t bytes_ = 0;
  Scratch partial_memory_;
  T* partial_ = nullptr;
};

}  // namespace

template <class T>
void forward(const Problem& problem, const Strategy<T>& strategy, const Results& results) {
  Forward<T>(problem, strategy, results).run();
}

template <class T>
int useful_threads(const Problem& problem, const Strategy<T>& strategy) {
  const double work = static_cast<double>(problem.B * problem.H) * static_cast<double>(problem.Tq) *
                      static_cast<double>(problem.Tk) * static_cast<double>(problem.D + problem.Dv + 8);
  const auto worth = static_cast<std::int64_t>(std::min(work / worth_a_thread, 1e6));
  return static_cast<int>(std::clamp<std::int64_t>(std::min(worth, strategy.tasks(problem)), 1, problem.threads));
}

template <class T>
std::int64_t forward_bytes(const Problem& problem, const Strategy<T>& strategy, int threads) {
  const std::int64_t partial = strategy.chunks == 1 ? 0
                                                    : problem.B * strategy.units * strategy.groups * strategy.chunks *
                                                          Forward<T>(problem, strategy, {}).partial_size() *
                                                          static_cast<std::int64_t>(sizeof(T));
  return partial + threads * static_cast<std::int64_t>(Workspace<T>(problem, strategy, nullptr).bytes());
}

template void forward(const Problem&, const Strategy<float>&, const Results&);
template void forward(const Problem&, const Strategy<double>&, const Results&);
template int useful_threads(const Problem&, const Strategy<float>&);
template int useful_threads(const Problem&, const Strategy<double>&);
template std::int64_t forward_bytes(const Problem&, const Strategy<float>&, int);
template std::int64_t forward_bytes(const Problem&, const Strategy<double>&, int);

}  // namespace qkv
