// attention/backward.cpp: the tasks of the backward pass, and how they take turns.
#include "attention/backward.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "attention/forward.h"
#include "base/aligned.h"
#include "base/divide_up.h"
#include "base/parallel.h"

namespace qkv {
namespace {

// How many ranges of keys have been done, for each group of queries. Ranges take turns, in their order.
class Turns {
 public:
  explicit Turns(std::int64_t groups) : done_(static_cast<std::size_t>(groups)) {}

  // Tasks are handed out in rising order, so whoever has the turn is at work already.
  void wait(std::int64_t group, std::int64_t range) const {
    while (of(group).load(std::memory_order_acquire) != range) {
      if (failed_.load(std::memory_order_relaxed)) throw std::runtime_error("a task before this one failed");
      std::this_thread::yield();
    }
  }
  void pass_on(std::int64_t group, std::int64_t range) { of(group).store(range + 1, std::memory_order_release); }
  void fail() { failed_.store(true, std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t>& of(std::int64_t group) const { return done_[static_cast<std::size_t>(group)]; }

  mutable std::vector<std::atomic<std::int64_t>> done_;
  std::atomic<bool> failed_ = false;
};

template <class T>
class Backward {
 public:
  Backward(const GradientTask<T>& task, const ProductGradients& to)
      : task_(task),
        problem_(task.problem),
        s_(task.strategy),
        to_(to),
        ranges_(divide_up(problem_.Tk, task.range_keys)),
        turns_(problem_.B * problem_.H * s_.groups),
        sums_(static_cast<std::size_t>(problem_.B * problem_.H * ranges_)) {
    // Where several heads or ranges add to the same element of a bias, one task does them all, one after the other.
    for (const MutableView& bias : task.biases) {
      one_head_after_another_ |= (bias.stride(0) == 0 && problem_.B > 1) || (bias.stride(1) == 0 && problem_.H > 1);
      one_range_after_another_ |= bias.stride(3) == 0 && problem_.Tk > 1;
    }
    const std::int64_t width = s_.scoring->usual.product_width;
    product_columns_ = divide_up(width, s_.vector) * s_.vector;
    // The additive kernel and users' functions take rows that are product_width apart.
    products_as_they_are_ =
        to.factor == 1 && !s_.scoring->parameters->hidden && problem_.score.kind != Score::Kind::yours;
    bytes_ = Workspace<T>(problem_, s_, nullptr).bytes;
    room_bytes_ = GradientRoom<T>(task, nullptr).bytes;
  }

  std::vector<PairSums> run() {
    if (problem_.Tq == 0 || problem_.Tk == 0) return {};
    const std::int64_t heads = problem_.B * problem_.Hk;
    const std::int64_t head_tasks = one_head_after_another_ ? 1 : heads;
    const std::int64_t range_tasks = one_range_after_another_ ? 1 : ranges_;
    parallel_for(head_tasks * range_tasks, useful_threads(problem_, s_, head_tasks * range_tasks), [&](std::int64_t i) {
      const std::int64_t head = i / range_tasks, range = i % range_tasks;
      try {
        for (std::int64_t h = one_head_after_another_ ? 0 : head; h < (one_head_after_another_ ? heads : head + 1);
             ++h) {
          for (std::int64_t r = one_range_after_another_ ? 0 : range;
               r < (one_range_after_another_ ? ranges_ : range + 1); ++r) {
            run_range(h / problem_.Hk, h % problem_.Hk, r);
          }
        }
      } catch (...) {
        turns_.fail();
        throw;
      }
    });
    return add_sums();
  }

 private:
  void run_range(std::int64_t b, std::int64_t key_head, std::int64_t range) {
    const Reused memory(bytes_ + room_bytes_);
    auto* at = static_cast<std::byte*>(memory.get());
    Workspace<T> workspace(problem_, s_, at);
    GradientRoom<T> room(task_, at + bytes_);
    const KeyRange keys{range * task_.range_keys, std::min((range + 1) * task_.range_keys, problem_.Tk)};
    const std::int64_t first = key_head * problem_.group, last = first + problem_.group;
    // Keys that differ by query head have gradients that do.
    const MutableView& dk = to_.dk.rows;
    const bool by_head = dk && dk.extent(1) != problem_.Hk;
    const bool dk_in_place = !by_head && in_place(to_.dk, product_columns_);
    const bool dv_in_place = in_place(to_.dv, s_.value_width(problem_));
    room.dk = gather_in(dk_in_place, to_.dk, {b, key_head, keys.first}, keys, room.own_dk, task_.product_width);
    room.dv = gather_in(dv_in_place, to_.dv, {b, key_head, keys.first}, keys, room.own_dv, s_.value_width(problem_));
    for (std::int64_t h = first; h < last; ++h) {
      run_head(b, h, range, keys, workspace, room);
      if (by_head) {
        put({to_.dk, b, h, keys}, room.dk, factors(b, h));
        room.dk.clear(keys.last - keys.first, task_.product_width);
      }
    }
    if (dk && !by_head && !dk_in_place) put({to_.dk, b, key_head, keys}, room.dk, factors(b, first));
    if (to_.dv.rows && !dv_in_place) {
      put({to_.dv, b, key_head, keys}, room.dv, std::vector<T>(static_cast<std::size_t>(problem_.Dv), T(1)));
    }
  }

  void run_head(std::int64_t b, std::int64_t h, std::int64_t range, KeyRange keys, Workspace<T>& workspace,
                GradientRoom<T>& room) {
    BlockGradients<T> block(task_, workspace, room);
    PairSums& sums = sums_[static_cast<std::size_t>((b * problem_.H + h) * ranges_ + range)];
    const std::vector<T> columns = factors(b, h);
    for (std::int64_t group = 0; group < s_.groups; ++group) {
      const KeyRange rows = s_.queries_of(group);
      // The first range's share is what the others are added to, each in its turn.
      const bool dq_in_place = range == 0 && in_place(to_.dq, product_columns_);
      room.dq = gather_in(dq_in_place, to_.dq, {b, h, rows.first}, rows, room.own_dq, task_.product_width);
      const bool seen = block.run({b, h, group}, keys, sums);
      if (!to_.dq.rows) continue;
      const std::int64_t turn = (b * problem_.H + h) * s_.groups + group;
      turns_.wait(turn, range);
      const bool add = to_.dq.add || range > 0;
      if (!dq_in_place && (seen || !add)) put({{to_.dq.rows, add}, b, h, rows}, room.dq, columns);
      turns_.pass_on(turn, range);
    }
  }

  // Whether products can be gathered where they are wanted: whole vectors of rows that need no factor.
  bool in_place(const ProductPlace& to, std::int64_t columns) const {
    const MutableView& view = to.rows;
    if (!view || view.extent(3) != columns || (&to != &to_.dv && !products_as_they_are_)) return false;
    const auto vector = static_cast<std::int64_t>(s_.vector);
    if (reinterpret_cast<std::uintptr_t>(view.data()) % (static_cast<std::size_t>(vector) * sizeof(T)) != 0)
      return false;
    return view.stride(0) % vector == 0 && view.stride(1) % vector == 0 && view.stride(2) % vector == 0;
  }

  // Rows for these queries or keys, zeros unless they are added to what is there.
  typename GradientRoom<T>::Rows gather_in(bool in_place, const ProductPlace& to, const RowOf& first, KeyRange range,
                                           T* own, std::int64_t width) const {
    typename GradientRoom<T>::Rows rows{own, width};
    if (in_place) rows = {to.rows.as<T>() + place(to.rows, first), to.rows.stride(2)};
    if (!in_place || !to.add) rows.clear(range.last - range.first, in_place ? to.rows.extent(3) : width);
    return rows;
  }

  // What the products' columns are multiplied by. Those of the additive score lack its hidden weights; see
  // kernels::AdditiveGradientArgs. Heads that share a gradient share these.
  std::vector<T> factors(std::int64_t b, std::int64_t h) const {
    std::vector<T> columns(static_cast<std::size_t>(task_.product_width), static_cast<T>(to_.factor));
    const Tensor& hidden = s_.scoring->parameters->hidden;
    if (!hidden || !task_.needs_slopes) return columns;
    const T factor = static_cast<T>(s_.scoring->way(b, h, problem_.H).derivative_factor());
    const View w = of_head(hidden, h);
    for (std::int64_t e = 0; e < w.extent(0); ++e) {
      columns[static_cast<std::size_t>(e)] *= w.as<T>()[e] * factor;
    }
    return columns;
  }

  struct Rows {
    ProductPlace place;
    std::int64_t batch, head;
    KeyRange range;
  };
  // With a factor for each column.
  void put(const Rows& to, const typename GradientRoom<T>::Rows& from, const std::vector<T>& columns) const {
    const MutableView& view = to.place.rows;
    const std::int64_t width = view.extent(3);
    for (std::int64_t i = to.range.first; i < to.range.last; ++i) {
      const T* values = from.row(i - to.range.first);
      T* row = view.as<T>() + place(view, {to.batch, to.head, i});
      if (to.place.add) {
        for (std::int64_t c = 0; c < width; ++c) row[c] += values[c] * columns[static_cast<std::size_t>(c)];
      } else {
        for (std::int64_t c = 0; c < width; ++c) row[c] = values[c] * columns[static_cast<std::size_t>(c)];
      }
    }
  }

  // Of all ranges, in their order.
  std::vector<PairSums> add_sums() const {
    std::vector<PairSums> heads(static_cast<std::size_t>(problem_.B * problem_.H));
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      PairSums& head = heads[i / static_cast<std::size_t>(ranges_)];
      head.softcap += sums_[i].softcap;
      head.slope += sums_[i].slope;
      head.square += sums_[i].square;
      if (!sums_[i].hidden.empty()) head.hidden.resize(sums_[i].hidden.size(), 0.0);
      for (std::size_t e = 0; e < sums_[i].hidden.size(); ++e) head.hidden[e] += sums_[i].hidden[e];
    }
    return heads;
  }

  const GradientTask<T>& task_;
  const Problem& problem_;
  const Strategy<T>& s_;
  const ProductGradients& to_;
  std::int64_t ranges_;
  Turns turns_;
  std::vector<PairSums> sums_;    // per head and range
  std::int64_t product_columns_;  // that the kernels write
  bool products_as_they_are_;     // are what is wanted
  std::size_t bytes_, room_bytes_;
  bool one_head_after_another_ = false, one_range_after_another_ = false;
};

}  // namespace

template <class T>
std::vector<PairSums> backward(const GradientTask<T>& task, const ProductGradients& to) {
  return Backward<T>(task, to).run();
}

template std::vector<PairSums> backward(const GradientTask<float>&, const ProductGradients&);
template std::vector<PairSums> backward(const GradientTask<double>&, const ProductGradients&);

}  // namespace qkv
