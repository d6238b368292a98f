// attention/block_gradients.h: the way back through the four stations, block of keys by block of keys.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <qkv/attend_backward.h>

#include "attention/block_loop.h"
#include "attention/edit_derivatives.h"
#include "attention/problem.h"
#include "attention/strategy.h"
#include "attention/workspace.h"
#include "base/carver.h"

namespace qkv {

// What each query brings from the forward pass and from upstream: all [B * H * Tq], or empty. With weight w and
// s = dout . v, the gradient of a score is
//
//   exponential  w (s + added - entropy ln(w)),            w = 2^(score - reference)
//   linear       multiplier (s + added - entropy ln(w)),   w = score * reference
//
// where added = -out . dout + dlse - dH H and entropy = dH (SEMANTICS.md, S21).
template <class T>
struct RowStates {
  std::vector<T> reference, added, entropy, multiplier;
};

// What does not change from task to task.
template <class T>
struct GradientTask {
  const Problem& problem;
  const Strategy<T>& strategy;
  const RowStates<T>& rows;
  View upstream;              // dout, [B, H, Tq, Dv]
  View chosen;                // top_k: [B, H, Tq, k]; hard: [B, H, Tq, 1]; absent elsewhere
  bool needs_slopes = false;  // gradients of scores are wanted, and there are some
  bool needs_softcap = false, needs_slopes_of_alibi = false, needs_squares = false;
  double slope_factor = 1;               // gradients of scores come multiplied by it
  std::vector<MutableView> biases = {};  // gradients of biases that are wanted, broadcast to [B, H, Tq, Tk]
  std::int64_t product_width = 0;        // of the rows that dq and dk are gathered in: a whole number of vectors
  std::int64_t range_keys = 0;           // keys of a task: a whole number of blocks
};

// Sums over pairs of one head, in a task.
struct PairSums {
  double softcap = 0, slope = 0;
  double square = 0;           // distances: of slopes by u^2 times u^2
  std::vector<double> hidden;  // additive: of w
};

// The memory of a task besides the Workspace.
template <class T>
struct GradientRoom {
  GradientRoom(const GradientTask<T>& task, std::byte* memory);

  std::size_t bytes;
  std::int64_t panel_weights;                   // between panels of weights or slopes
  std::int64_t rows;                            // of a group
  std::ptrdiff_t row_strip, key_strip;          // between strips of rows of the group, of keys of a block
  T *weights, *slopes;                          // per panel: [block][lanes]
  T* upstream;                                  // per panel, transposed: [Dv][lanes]
  T *upstream_strips, *query_strips;            // of the group
  T* key_strips;                                // of the block
  T *own_dq, *own_dk, *own_dv;                  // [rows][product width], [range][product width], [range][value width]
  T *reference, *added, *entropy, *multiplier;  // per panel: [lanes]
  T* ones;                                      // [lanes]
  T* unedited;                                  // [block][lanes]: scores on their way to be edited
  T* dhidden;                                   // additive: the gradient of w, from the block in hand

  // Where gradients are gathered: in this room or, where they need nothing more, where they are wanted.
  struct Rows {
    T* data;
    std::int64_t stride;
    T* row(std::int64_t i) const { return data + i * stride; }
    void clear(std::int64_t count, std::int64_t width) const {
      for (std::int64_t i = 0; i < count; ++i) std::fill_n(row(i), width, T(0));
    }
  };
  Rows dq, dk, dv;
};

// Uses a loop that has begun a group, see BlockLoop.
template <class T>
class BlockGradients {
 public:
  BlockGradients(const GradientTask<T>& task, Workspace<T>& workspace, GradientRoom<T>& room);

  // Adds the group's share to room.dq, which starts at its first query, to room.dk and room.dv, which start at key
  // keys.first, and to `sums`. False: the group sees nothing of these keys.
  bool run(const GroupOf& group, KeyRange keys, PairSums& sums);

 private:
  using Part = typename Sight<T>::Part;

  void begin_rows();
  bool load_strips(const View& view, std::int64_t width, T* strips) const;
  bool load_padded(const T* rows, std::ptrdiff_t stride, std::int64_t count, T* to) const;
  bool by_units() const;
  void panel_slopes(int p);
  void recall_plain(int p, T* weights, T* slopes);
  void recall(int p, T* weights, T* slopes);
  void keep_chosen(int p, T* weights) const;
  void undo_edits(int p, T* slopes);
  void call_derivative();
  void add_to_bias(const MutableView& bias, int p, const T* slopes) const;
  void clear_unseen(int p, T* block) const;
  void products();
  void gather(const T* weights, const T* strips, std::int64_t width, const typename GradientRoom<T>::Rows& sums) const;
  void product_queries_and_keys();
  void slopes_by_distance(int p, T* slopes);
  void additive_gradients();
  void add_hidden();
  void add_units(T slope, std::int64_t i, std::int64_t j, std::int64_t key);
  void product_pair_by_pair(bool with_slopes);

  T* weights(int p) const { return room_.weights + p * room_.panel_weights; }
  T* slopes(int p) const { return room_.slopes + p * room_.panel_weights; }
  T* row_array(T* array, int p) const { return array + p * s_.max_lanes; }
  int offset(int p) const { return static_cast<int>(loop_.sight_.part(p).first - loop_.sight_.block().first); }
  int block_keys() const { return static_cast<int>(loop_.sight_.block().last - loop_.sight_.block().first); }
  RowOf row(int p, int r) const { return row_of(loop_.group_.panel(p), r, loop_.group_.batch, loop_.head()); }
  std::int64_t first_row(int p) const { return loop_.group_.panel(p).first_query - loop_.group_.panel(0).first_query; }

  const GradientTask<T>& task_;
  const Problem& problem_;
  const Strategy<T>& s_;
  Workspace<T>& w_;
  GradientRoom<T>& room_;
  BlockLoop<T> loop_;
  EditDerivatives<T> derivatives_;
  KeyRange keys_{};
  std::int64_t rows_ = 0;
  PairSums* sums_ = nullptr;
  bool rows_finite_ = true, keys_finite_ = true;
};

}  // namespace qkv
