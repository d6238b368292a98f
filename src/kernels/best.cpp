// kernels/best.cpp: the search for large scores, and the few best of each row.
//
// The same code serves both layouts of a block (see block.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/best.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/block.h"
#include "kernels/column-inl.h"
#include "kernels/isa.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// 64 places at a time become the bits of a word, with no branch: which of them are above is hard to foresee.
template <class T>
int above(const AboveArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const T* scores = args.scores;
  std::int32_t* next = args.places;
  const int lanes = args.lanes, first = args.first * lanes, last = args.last * lanes;
  const auto bits_of = [&](int at, Vec<T> threshold) {
    std::uint8_t bytes[8];  // Highway asks for 8 and sets one for each 8 lanes
    hn::StoreMaskBits(d, hn::Not(hn::Le(hn::Load(d, scores + at), threshold)), bytes);
    std::uint64_t bits = bytes[0];
    if constexpr (L > 8) bits |= static_cast<std::uint64_t>(bytes[1]) << 8;
    return bits;
  };
  const auto add_word = [&](int at, std::uint64_t word) {
    // The first and the last vector may hold keys that are not asked for, where a vector holds several.
    if (at < first) word &= ~std::uint64_t{0} << (first - at);
    if (last - at < 64) word &= (std::uint64_t{1} << (last - at)) - 1;
    for (; word != 0; word &= word - 1) *next++ = at + std::countr_zero(word);
  };
  const auto find_all = [&]<int vectors>() {
    Vec<T> threshold[vectors];
    for (int v = 0; v < vectors; ++v) threshold[v] = hn::Load(d, args.thresholds + v * L);
    for (int at = first / L * L; at < last; at += 64) {
      const int count = std::min((last - at + L - 1) / L, 64 / L);
      std::uint64_t word = 0;
      if (count == 64 / L) {
        for (int i = 0; i < 64 / L; ++i) word |= bits_of(at + i * L, threshold[i % vectors]) << (i * L);
      } else {
        for (int i = 0; i < count; ++i) word |= bits_of(at + i * L, threshold[i % vectors]) << (i * L);
      }
      add_word(at, word);
    }
  };
  if (lanes <= L) {
    find_all.template operator()<1>();
  } else if (lanes == 2 * L) {
    find_all.template operator()<2>();
  } else {
    for (int at = first; at < last; at += L) {
      for (std::uint64_t bits = bits_of(at, hn::Load(d, args.thresholds + at % lanes)); bits != 0; bits &= bits - 1) {
        *next++ = at + std::countr_zero(bits);
      }
    }
  }
  return static_cast<int>(next - args.places);
}

// What keep goes through at once: a column of vectors, with the slots of its lanes.
template <class T>
struct Slice {
  KeepArgs<T> args;  // a copy: for all the compiler knows, storing a score might change the original
  const T* scores;
  int vectors, keys;        // how many; keys of a vector
  std::ptrdiff_t distance;  // from vector to vector
  T* best;
  KeyIndex<T>* indices;

  Slice(const KeepArgs<T>& of, const Column<T>& column, int first_lane)
      : args(of),
        scores(of.scores + first_lane),
        vectors(column.vectors(of.keys)),
        keys(column.keys),
        distance(column.distance),
        best(of.best + first_lane),
        indices(of.indices + first_lane) {}
  Vec<T> slot(int i) const { return hn::Load(Tag<T>(), best + i * args.stride); }
};

// Scores that are not above these cannot be among the best of their lanes. The best so far and the maxima of groups of
// keys are scores of different keys, so that the kept-th best of these is no better than the kept-th best of all; and
// not much worse, as two of the best are seldom in one group.
template <class T>
HWY_INLINE Vec<T> raised_thresholds(const Slice<T>& slice) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>, group = 8;
  const std::ptrdiff_t distance = slice.distance;
  Vec<T> best[best_slots];
  for (int i = 0; i < best_slots; ++i) best[i] = slice.slot(i);
  const T* scores = slice.scores;
  for (int n = 0; n + group <= slice.vectors; n += group, scores += group * distance) {
    auto highest = hn::Load(d, scores);
    for (int i = 1; i < group; ++i) highest = hn::Max(hn::Load(d, scores + i * distance), highest);
    for (int i = best_slots - 1; i > 0; --i) best[i] = hn::Max(best[i], hn::Min(best[i - 1], highest));
    best[0] = hn::Max(best[0], highest);
  }
  HWY_ALIGN T found[best_slots * L];
  for (int i = 0; i < best_slots; ++i) hn::Store(best[i], d, found + i * L);
  // Scores that are equal to what was found are wanted, too; those that are equal to the worst so far come too late.
  const auto least = hn::Load(d, found + (slice.args.kept - 1) * L), worst = slice.slot(slice.args.kept - 1);
  const auto margin = hn::MulAdd(hn::Abs(least), hn::Set(d, std::numeric_limits<T>::epsilon()),
                                 hn::Set(d, std::numeric_limits<T>::min()));
  return hn::IfThenElse(hn::Gt(least, worst), hn::Sub(least, margin), worst);
}

// Bits of a word of marks: one a vector, in the word of the score's lane.
template <class T>
inline constexpr int mark_bits = 8 * sizeof(T);

// Marks what is above the thresholds, NaN among it.
template <class T>
HWY_INLINE void mark(const Slice<T>& slice, Vec<T> thresholds) {
  const Tag<T> d;
  const hn::RebindToUnsigned<Tag<T>> du;
  const std::ptrdiff_t distance = slice.distance;
  const T* scores = slice.scores;
  MarkWord<T>* marks = slice.args.marks;
  for (int n = 0; n < slice.vectors; n += mark_bits<T>, marks += lanes_of<T>) {
    auto word = hn::Zero(du), bit = hn::Set(du, MarkWord<T>(1));
    const auto compare = [&] {
      const auto is_below = hn::VecFromMask(d, hn::Le(hn::Load(d, scores), thresholds));
      word = hn::Or(word, hn::AndNot(hn::BitCast(du, is_below), bit));
      bit = hn::Add(bit, bit);
      scores += distance;
    };
    const int last = std::min(slice.vectors - n, mark_bits<T>);
    int i = 0;
    for (; i + 4 <= last; i += 4) {
      for (int once = 0; once < 4; ++once) compare();
    }
    for (; i < last; ++i) compare();
    hn::Store(word, du, marks);
  }
  hn::Store(hn::Zero(du), du, marks);  // for who reads two words of 32 bits
}

// Puts what is marked in a queue per lane, so that all lanes have something to do when it is inserted: seldom are the
// scores of one key among the best of neighbouring rows. lengths[e] is that of lane e's queue, times L. Gives up, where
// it may, when a queue gets long.
template <class T>
HWY_INLINE bool line_up(const Slice<T>& slice, bool may_give_up, KeyIndex<T>* lengths) {
  constexpr int L = lanes_of<T>, long_queue = 32, at_once = 3;
  const std::ptrdiff_t distance = slice.distance;
  for (int lane = 0; lane < L; ++lane) {
    const T* scores = slice.scores + lane;
    const MarkWord<T>* marks = slice.args.marks + lane;
    T* queue = slice.args.queue + lane;
    KeyIndex<T>* numbers = slice.args.queue_numbers + lane;
    std::ptrdiff_t length = 0;
    for (int n = 0; n < slice.vectors; n += 64, scores += 64 * distance, marks += 64 / mark_bits<T> * L) {
      const std::uint64_t last = std::uint64_t{1} << (std::min(slice.vectors - n, 64) - 1);
      std::uint64_t word = marks[0];
      if constexpr (mark_bits<T> == 32) word |= static_cast<std::uint64_t>(marks[L]) << 32;
      const std::ptrdiff_t count = std::popcount(word);
      // Several at once, wanted or not, and also where there are none: how many there are is hard to foresee, and a
      // wrong guess costs more.
      std::ptrdiff_t at = length;
      do {
        for (int i = 0; i < at_once; ++i, at += L, word &= word - 1) {
          const std::ptrdiff_t vector = std::countr_zero(word | last);
          queue[at] = scores[vector * distance];
          numbers[at] = static_cast<KeyIndex<T>>(n + vector);
        }
      } while (word != 0);
      length += count * L;
    }
    if (may_give_up && length > long_queue * L) return false;
    lengths[lane] = static_cast<KeyIndex<T>>(length);
  }
  return true;
}

// Inserts the queues in the slots. What is better than a slot's score goes there, or, where it is better than the score
// of the slot before, that one. No slot waits for another.
template <class T>
HWY_INLINE void insert(const Slice<T>& slice, const KeyIndex<T>* lengths) {
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  constexpr int L = lanes_of<T>;
  const KeepArgs<T>& args = slice.args;
  const std::ptrdiff_t stride = args.stride;
  KeyIndex<T>* indices = slice.indices;
  // Indices go the ways of their scores: as bits.
  const auto load_index = [&](int i) { return hn::BitCast(d, hn::Load(di, indices + i * stride)); };
  const auto store_index = [&](Vec<T> bits, int i) { hn::Store(hn::BitCast(di, bits), di, indices + i * stride); };
  HWY_ALIGN KeyIndex<T> firsts[L];
  for (int lane = 0; lane < L; ++lane) {
    firsts[lane] = static_cast<KeyIndex<T>>(args.first_key + (slice.keys > 1 ? lane / args.lanes : 0));
  }
  const auto first = hn::Load(di, firsts), length = hn::Load(di, lengths);
  const int shift = std::countr_zero(static_cast<unsigned>(slice.keys));
  const KeyIndex<T> longest = *std::max_element(lengths, lengths + L);
  Vec<T> best[best_slots];
  for (int i = 0; i < best_slots; ++i) best[i] = slice.slot(i);
  for (KeyIndex<T> at = 0; at < longest; at += L) {
    const auto is_there = hn::RebindMask(d, hn::Lt(hn::Set(di, at), length));
    const auto score =
        hn::IfThenElse(is_there, hn::Load(d, args.queue + at), hn::Set(d, -std::numeric_limits<T>::infinity()));
    const auto number = hn::ShiftLeftSame(hn::Load(di, args.queue_numbers + at), shift);
    const auto index = hn::BitCast(d, hn::Add(first, number));
    auto is_better = hn::Gt(score, best[best_slots - 1]);
    for (int i = best_slots - 1; i > 0; --i) {
      const auto is_better_before = hn::Gt(score, best[i - 1]);
      const auto moved = hn::IfThenElse(is_better_before, best[i - 1], score);
      const auto moved_index = hn::IfThenElse(is_better_before, load_index(i - 1), index);
      best[i] = hn::IfThenElse(is_better, moved, best[i]);
      store_index(hn::IfThenElse(is_better, moved_index, load_index(i)), i);
      is_better = is_better_before;
    }
    best[0] = hn::IfThenElse(hn::Or(is_better, hn::IsNaN(score)), score, best[0]);
    store_index(hn::IfThenElse(is_better, index, load_index(0)), 0);
  }
  for (int i = 0; i < best_slots; ++i) hn::Store(best[i], d, slice.best + i * stride);
}

// The worst that are kept are thresholds. They are raised only where they let too much through: in the first block, and
// where scores rise from key to key.
template <class T>
void keep(const KeepArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  const Column<T> column(args.lanes);
  // What the last vector holds beyond the last key: nothing, where a vector is a key.
  std::fill(args.scores + args.keys * args.lanes, args.scores + column.vectors(args.keys) * column.keys * args.lanes,
            lowest);
  for (int lane = 0; lane < column.distance; lane += L) {
    const Slice<T> slice(args, column, lane);
    HWY_ALIGN KeyIndex<T> lengths[L];
    const auto worst = slice.slot(args.kept - 1);
    const bool all_full = hn::AllTrue(d, hn::Gt(worst, hn::Set(d, lowest)));
    for (bool raise = !all_full;; raise = true) {
      mark(slice, raise ? raised_thresholds(slice) : worst);
      if (line_up(slice, !raise, lengths)) break;
    }
    insert(slice, lengths);
  }
}

template <class T>
constexpr BestKernels<T> best_table = {above<T>, keep<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const BestKernels<float>& best_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, best_table<float>);
}
template <>
const BestKernels<double>& best_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, best_table<double>);
}

}  // namespace qkv::kernels
#endif
