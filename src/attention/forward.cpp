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

  T* partial(std::int64_t group, std::int64_t chunk) const {
    return partial_ + (group * s_.chunks + chunk) * partial_size();
  }

  void chunk_task(std::int64_t index, std::int64_t chunk) {
    Borrowed memory;
    Workspace<T> workspace(problem_, s_, static_cast<std::byte*>(memory->scratch.get(bytes_)));
    BlockLoop<T> loop(problem_, s_, workspace);
    const std::int64_t first = chunk * s_.chunk_keys;
    loop.begin(group_of(index), {first, std::min(first + s_.chunk_keys, problem_.Tk)});
    loop.pool_all();
    T* to = partial(index, chunk);
    to = std::copy_n(workspace.max, s_.group_panels * s_.max_lanes, to);
    to = std::copy_n(workspace.sum, s_.group_panels * s_.max_lanes, to);
    std::copy_n(workspace.sums, s_.group_panels * workspace.panel_sums, to);
  }

  // Chunks are merged in their order. One that saw nothing has no part in it; the first that did is taken as it is.
  void merge_task(std::int64_t index) {
    const GroupOf group = group_of(index);
    Borrowed memory;
    Workspace<T> w(problem_, s_, static_cast<std::byte*>(memory->scratch.get(bytes_)));
    const std::int64_t lanes = s_.max_lanes, width = s_.value_width(problem_);
    constexpr T lowest = -std::numeric_limits<T>::infinity();
    const auto panels = std::span(s_.panels).subspan(static_cast<std::size_t>(group.group * s_.group_panels));
    const auto count = std::min(panels.size(), static_cast<std::size_t>(s_.group_panels));
    std::vector<T> max(static_cast<std::size_t>(s_.group_panels * lanes), lowest), sum(max.size(), T(0));
    std::vector<T> sums(static_cast<std::size_t>(w.panel_sums));
    Finish<T> finish(problem_, s_, results_, w);
    for (std::size_t p = 0; p < count; ++p) {
      for (int r = 0; r < panels[p].rows(); ++r) {
        T& row_max = max[p * static_cast<std::size_t>(lanes) + static_cast<std::size_t>(r)];
        T& row_sum = sum[p * static_cast<std::size_t>(lanes) + static_cast<std::size_t>(r)];
        T* row = sums.data() + r * width;
        bool first = true;
        for (std::int64_t chunk = 0; chunk < s_.chunks; ++chunk) {
          const T* from = partial(index, chunk);
          const T chunk_max = from[static_cast<std::int64_t>(p) * lanes + r];
          const T chunk_sum = from[(s_.group_panels + static_cast<std::int64_t>(p)) * lanes + r];
          const T* chunk_row =
              from + 2 * s_.group_panels * lanes + static_cast<std::int64_t>(p) * w.panel_sums + r * width;
          if (chunk_max == lowest && chunk_sum == T(0)) continue;  // a NaN has no maximum and must come through
          if (first) {
            first = false;
            row_max = chunk_max;
            row_sum = chunk_sum;
            std::copy_n(chunk_row, width, row);
            continue;
          }
          const T now = std::max(row_max, chunk_max);
          const T mine = std::exp2(row_max - now), theirs = std::exp2(chunk_max - now);
          row_max = now;
          row_sum = row_sum * mine + chunk_sum * theirs;
          for (std::int64_t c = 0; c < width; ++c) row[c] = row[c] * mine + chunk_row[c] * theirs;
        }
      }
      finish.write({group, panels[p], group.unit * s_.unit_heads, max.data() + p * static_cast<std::size_t>(lanes),
                    sum.data() + p * static_cast<std::size_t>(lanes), sums.data(), width, true});
    }
    if (results_.weights || results_.scores) finish.write_pairs(group, max.data(), sum.data());
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
