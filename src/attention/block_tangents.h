// attention/block_tangents.h: small changes on their way through the four stations, block of keys by block of keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/block_loop.h"
#include "attention/edit_derivatives.h"
#include "attention/problem.h"
#include "attention/strategy.h"
#include "attention/workspace.h"

namespace qkv {

// What does not change from group to group. With weight P and rate s' of a score,
//
//   out' = sum_j A_j v_j + sum_j P_j v'_j - (sum_j A_j) out,   A = P s' (exponential), s' / sum of scores (linear),
//
// where the last term falls away if weights are not normalized.
template <class T>
struct TangentTask {
  const Problem& problem;
  const Strategy<T>& strategy;
  std::vector<T> reference;  // of weights, [B * H * Tq]; see recall.h
  View left, right;          // rates of scores are their products, or additive's from these rates of projections
  View dv;                   // [B, Hk, Tk, Dv], dense; absent: values stay
  std::vector<View> biases;  // rates, [B, H, Tq, Tk]
  double factor;             // of rates of scores, to those of what is weighed
  View out;                  // that attend gave, [B, H, Tq, Dv]; absent where weights are not normalized
  MutableView out_rates;     // dense
  MutableView lse_rates;     // [B, H, Tq], dense; absent: not wanted
};

// The memory of a task besides the Workspace.
template <class T>
struct TangentRoom {
  TangentRoom(const TangentTask<T>& task, std::byte* memory);

  std::size_t bytes;
  std::ptrdiff_t strip_stride, panel_left;
  T *weights, *rates, *unedited;  // [block][lanes]
  T* left;                        // per panel, transposed: [width][lanes]
  T* dv_strips;                   // of the block
  T* totals;                      // per panel: the sums of A
  T *ones, *hidden;
};

template <class T>
class BlockTangents {
 public:
  BlockTangents(const TangentTask<T>& task, Workspace<T>& workspace, TangentRoom<T>& room);

  // Writes the rates of the group's queries.
  void run(const GroupOf& group);

 private:
  using Part = typename Sight<T>::Part;

  void begin_panel(int p);
  void fetch_dv();
  void panel_rates(int p);
  void change_weights(int p);
  void add_biases(int p) const;
  void pool(int p);
  void pool_pair_by_pair(int p);
  void finish(int p) const;

  RowOf row(int p, int r) const { return row_of(loop_.group_.panel(p), r, loop_.group_.batch, loop_.head()); }
  std::size_t state_of(const RowOf& row) const {
    return static_cast<std::size_t>((row.batch * problem_.H + row.head) * problem_.Tq + row.query);
  }
  int offset(int p) const { return static_cast<int>(loop_.sight_.part(p).first - loop_.sight_.block().first); }
  T* left(int p) const { return room_.left + p * room_.panel_left; }
  T* totals(int p) const { return room_.totals + p * s_.max_lanes; }

  const TangentTask<T>& task_;
  const Problem& problem_;
  const Strategy<T>& s_;
  Workspace<T>& w_;
  TangentRoom<T>& room_;
  BlockLoop<T> loop_;
  EditDerivatives<T> derivatives_;
  bool dv_finite_ = true;
};

}  // namespace qkv
