// qkv/mask.h: the second station: which keys a query may see, and what is added to its score.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <variant>
#include <vector>

#include <qkv/export.h>
#include <qkv/score.h>
#include <qkv/tensor.h>

namespace qkv {

// Where query i stands among the keys: at position p = i + offset. Causal masks, windows and ALiBi are about p.
// With as many queries as keys nothing need be said; otherwise one of the parts of a mask must name it.
struct Alignment {
  enum class Kind : std::uint8_t { unnamed, top_left, bottom_right, offset, offsets };
  Kind kind = Kind::unnamed;
  std::int64_t offset = 0;
  View offsets = {};  // [B], int32 or int64
};
// p = i: the first query stands at the first key (PyTorch, JAX).
QKV_API Alignment top_left();
// The last query stands at the last key: p = i + Tk - Tq, or i + length - Tq per sequence where `lengths` of rank 1
// are given too (FlashAttention, MLX).
QKV_API Alignment bottom_right();
// p = i + offset, for instance the length of a cache's past. May be negative.
QKV_API Alignment offset(std::int64_t offset);
// The same with one offset per sequence: [B], int32 or int64.
QKV_API Alignment offset(View offsets);

// One block of decisions, handed to a function of yours that says which pairs are kept.
enum class Kept : std::uint8_t { none, all, some };
struct KeepBlock {
  bool* keep;  // to fill, only where the answer is Kept::some: keep[j * stride + i]
  std::int64_t stride;
  std::int64_t queries, keys;
  std::int64_t batch, head;
  std::int64_t first_query, first_key;
  bool& at(std::int64_t i, std::int64_t j) const { return keep[j * stride + i]; }
};

// The parts a mask is made of. Made by the factories below; read by the library.
namespace mask_part {
struct Lengths {
  View lengths;
};
struct Causal {
  Alignment alignment;
};
struct Window {
  std::int64_t left, right;
  Alignment alignment;
};
struct Keep {
  View keep;
};
struct Drop {
  View drop;
};
struct KeepKeys {
  View keep;
};
struct Bias {
  View bias;
};
struct Alibi {
  View slopes;
  Alignment alignment;
};
struct BlockMask {
  View keep;
  std::int64_t queries, keys;
};
struct KeepBy {
  const void* function;
  Kept (*call)(const void* function, const KeepBlock& block);
};
struct EditBy {
  const void* function;
  void (*call_float)(const void* function, const ScoreBlock<float>& block);
  void (*call_double)(const void* function, const ScoreBlock<double>& block);
  const void* derivative = nullptr;  // for gradients
  void (*derive_float)(const void* derivative, const SlopeBlock<float>& block) = nullptr;
  void (*derive_double)(const void* derivative, const SlopeBlock<double>& block) = nullptr;
};
}  // namespace mask_part

// Any number of parts together: a key is seen if every part lets it be seen, and all that is added is added.
//
//   Mask m = causal(bottom_right()) & lengths(lens) & bias(b);
//
// A Mask borrows the memory of its views and functions: they must live until attend returns.
class QKV_API Mask {
 public:
  using Part = std::variant<mask_part::Lengths, mask_part::Causal, mask_part::Window, mask_part::Keep, mask_part::Drop,
                            mask_part::KeepKeys, mask_part::Bias, mask_part::Alibi, mask_part::BlockMask,
                            mask_part::KeepBy, mask_part::EditBy>;
  Mask() = default;
  explicit Mask(Part part) { parts_.push_back(std::move(part)); }

  const std::vector<Part>& parts() const { return parts_; }
  Mask& operator&=(const Mask& other) {
    parts_.insert(parts_.end(), other.parts_.begin(), other.parts_.end());
    return *this;
  }
  friend Mask operator&(Mask a, const Mask& b) { return a &= b; }

 private:
  std::vector<Part> parts_;
};

// Valid lengths: key j is seen if j < length. [B], one per sequence, or [B, Tq], one per query; int32 or int64, 0..Tk.
QKV_API Mask lengths(View valid_lens);
// Key j is seen by query i if j <= p (see Alignment).
QKV_API Mask causal(const Alignment& alignment = {});
// Key j is seen if p - left <= j <= p + right; a negative number means no limit on that side.
QKV_API Mask window(std::int64_t left, std::int64_t right, const Alignment& alignment = {});
// True = may attend. Boolean, broadcast right-aligned over [B, H, Tq, Tk]; with queries of rank 3, a mask per sequence
// is [B, 1, Tq, Tk].
QKV_API Mask keep(View may_attend);
// True = may not attend (the meaning of nn.MultiheadAttention). Boolean, broadcast likewise.
QKV_API Mask drop(View may_not_attend);
// True = this key may be attended by every query of its sequence: [B, Tk]; boolean.
QKV_API Mask keep_keys(View may_be_attended);
// Added to the score: floating, broadcast right-aligned over [B, H, Tq, Tk]. Exactly -inf excludes.
QKV_API Mask bias(View added);
// Adds -slope * |p - j|, one slope per query head: [H], floating.
QKV_API Mask alibi(View slopes, const Alignment& alignment = {});
// True = the cell may attend: cell (i / queries, j / keys). Boolean [ceil(Tq/queries), ceil(Tk/keys)], broadcast over
// B and H in front. Cells that may not attend cost nothing where they cover whole blocks.
QKV_API Mask block_mask(View may_attend, std::int64_t queries, std::int64_t keys);

// Your own decision which pairs are kept: Kept f(const KeepBlock&), pure, callable from several threads. Borrowed.
// To answer none or all saves the work of filling `keep`; none also saves the block's scores.
template <class F>
requires std::is_invocable_r_v<Kept, const F&, const KeepBlock&> Mask keep_by(const F& function) {
  return Mask(mask_part::KeepBy{
      &function, [](const void* f, const KeepBlock& block) -> Kept { return (*static_cast<const F*>(f))(block); }});
}
template <class F>
Mask keep_by(const F&& function) = delete;  // it would be gone before attend calls it

// Your own edit of the scores, after scale and softcap and before bias and ALiBi: void f(const ScoreBlock<T>&) for
// T = float, double or both (a generic lambda). Pure, callable from several threads. Borrowed. It edits, it does not
// exclude: -inf from it is a score. Pairs that the mask excludes may or may not be shown to it.
template <class F>
requires(std::is_invocable_v<const F&, const ScoreBlock<float>&> ||
         std::is_invocable_v<const F&, const ScoreBlock<double>&>) Mask edit_by(const F& function) {
  mask_part::EditBy part{&function, nullptr, nullptr};
  if constexpr (std::is_invocable_v<const F&, const ScoreBlock<float>&>) {
    part.call_float = [](const void* f, const ScoreBlock<float>& block) { (*static_cast<const F*>(f))(block); };
  }
  if constexpr (std::is_invocable_v<const F&, const ScoreBlock<double>&>) {
    part.call_double = [](const void* f, const ScoreBlock<double>& block) { (*static_cast<const F*>(f))(block); };
  }
  return Mask(part);
}
template <class F>
Mask edit_by(const F&& function) = delete;  // it would be gone before attend calls it

// With its derivative, for attend_backward: void d(const SlopeBlock<T>&), likewise.
template <class F, class D>
requires(std::is_invocable_v<const D&, const SlopeBlock<float>&> ||
         std::is_invocable_v<const D&, const SlopeBlock<double>&>) Mask
    edit_by(const F& function, const D& derivative) {
  mask_part::EditBy part = std::get<mask_part::EditBy>(edit_by(function).parts()[0]);
  part.derivative = &derivative;
  if constexpr (std::is_invocable_v<const D&, const SlopeBlock<float>&>) {
    part.derive_float = [](const void* d, const SlopeBlock<float>& block) { (*static_cast<const D*>(d))(block); };
  }
  if constexpr (std::is_invocable_v<const D&, const SlopeBlock<double>&>) {
    part.derive_double = [](const void* d, const SlopeBlock<double>& block) { (*static_cast<const D*>(d))(block); };
  }
  return Mask(part);
}
template <class F, class D>
Mask edit_by(const F&, const D&&) = delete;

}  // namespace qkv
