// kernels/edits.cpp: what happens to a block of scores between score and weigh.
//
// The same code serves both layouts of a block (see block.h): with lanes below the vector's length a vector holds
// several keys, and the arrays per row repeat accordingly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/edits.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include "kernels/block.h"
#include "kernels/isa.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// Stores edit(score, key, at, rows) for every vector of the block, where key holds each lane's key, `at` is the
// vector's place in the block, and rows is what load_rows(row) gave for the vector's place in arrays per row, once,
// before the loop. Raises row_max on the way where that is asked for.
template <int vectors, class T, class LoadRows, class Edit>
HWY_INLINE void for_each_key(const EditArgs<T>& args, int first_row, LoadRows load_rows, Edit edit) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  Vec<T> highest[vectors];
  decltype(load_rows(0)) rows[vectors];
  for (int v = 0; v < vectors; ++v) {
    rows[v] = load_rows(first_row + v * L);
    highest[v] = args.row_max != nullptr ? hn::Load(d, args.row_max + first_row + v * L) : hn::Zero(d);
  }
  T* scores = args.scores;
  const int lanes = args.lanes, last = args.last;  // copied: for the compiler, storing a vector might change them
  for (int j = args.first; j < last; ++j) {
    const auto key = hn::Set(d, static_cast<T>(j));
    for (int v = 0; v < vectors; ++v) {
      const int at = j * lanes + first_row + v * L;
      const auto score = edit(hn::Load(d, scores + at), key, at, rows[v]);
      highest[v] = max_of_numbers(highest[v], score);
      hn::Store(score, d, scores + at);
    }
  }
  if (args.row_max == nullptr) return;
  for (int v = 0; v < vectors; ++v) hn::Store(highest[v], d, args.row_max + first_row + v * L);
}

template <class T, class LoadRows, class Edit>
HWY_INLINE void for_each_vector(const EditArgs<T>& args, LoadRows load_rows, Edit edit) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  if (args.lanes >= L) {
    int row = 0;
    for (; row + 2 * L <= args.lanes; row += 2 * L) for_each_key<2>(args, row, load_rows, edit);
    if (row < args.lanes) for_each_key<1>(args, row, load_rows, edit);
    return;
  }
  const int keys_per_vector = L / args.lanes;
  HWY_ALIGN T offsets[L];
  for (int i = 0; i < L; ++i) offsets[i] = static_cast<T>(i / args.lanes);
  const auto offset = hn::Load(d, offsets);
  const auto rows = load_rows(0);
  for (int j = args.first; j < args.last; j += keys_per_vector) {
    const int at = j * args.lanes;
    const auto key = hn::Add(offset, hn::Set(d, static_cast<T>(j)));
    hn::Store(edit(hn::Load(d, args.scores + at), key, at, rows), d, args.scores + at);
  }
}

struct Nothing {};
constexpr auto nothing = [](int) { return Nothing(); };

// Two arrays per row.
template <class T>
struct Two {
  Vec<T> a, b;
};

template <class T>
void softcap(const EditArgs<T>& args) {
  const Tag<T> d;
  const auto cap = hn::Set(d, args.cap), inverse = hn::Set(d, T(1) / args.cap);
  for_each_vector(args, nothing,
                  [&](auto score, auto, int, auto) { return hn::Mul(cap, tanh(d, hn::Mul(score, inverse))); });
}

template <class T>
void add(const EditArgs<T>& args) {
  const Tag<T> d;
  const auto excluded = hn::Set(d, args.excluded);
  for_each_vector(args, nothing, [&](auto score, auto, int at, auto) {
    return add_or_exclude(score, hn::Load(d, args.added + at), excluded);
  });
}

template <class T>
void alibi(const EditArgs<T>& args) {
  const Tag<T> d;
  const auto load = [&](int row) { return Two<T>{hn::Load(d, args.positions + row), hn::Load(d, args.slopes + row)}; };
  for_each_vector(args, load, [](auto score, auto key, int, const auto& of) {
    return hn::NegMulAdd(of.b, hn::Abs(hn::Sub(of.a, key)), score);
  });
}

template <class T>
void limit(const EditArgs<T>& args) {
  const Tag<T> d;
  const auto excluded = hn::Set(d, args.excluded);
  const auto load = [&](int row) { return Two<T>{hn::Load(d, args.begins + row), hn::Load(d, args.ends + row)}; };
  for_each_vector(args, load, [&](auto score, auto key, int, const auto& of) {
    return hn::IfThenElse(hn::And(hn::Ge(key, of.a), hn::Lt(key, of.b)), score, excluded);
  });
}

template <class T>
void maximum(const EditArgs<T>& args) {
  for_each_vector(args, nothing, [](auto score, auto, int, auto) { return score; });
}

template <class T>
constexpr EditKernels<T> edit_table = {softcap<T>, add<T>, alibi<T>, limit<T>, maximum<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const EditKernels<float>& edit_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, edit_table<float>);
}
template <>
const EditKernels<double>& edit_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, edit_table<double>);
}

}  // namespace qkv::kernels
#endif
