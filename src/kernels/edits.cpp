// kernels/edits.cpp: what happens to a block of scores between score and weigh.
//
// The same code serves both layouts of a block (see block.h): with lanes below the vector's length a vector holds
// several keys, and the arrays per row repeat accordingly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/edits.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <limits>

#include "kernels/block.h"
#include "kernels/isa.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// Calls edit(score, key, at, row) for every vector of the block, where key holds each lane's key, `at` is the vector's
// place in the block and `row` its place in arrays per row, and stores what it returns. Raises row_max on the way where
// that is asked for.
template <int vectors, class T, class Edit>
HWY_INLINE void for_each_key(const EditArgs<T>& args, int first_row, Edit edit) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  Vec<T> highest[vectors];
  for (int v = 0; v < vectors; ++v) {
    highest[v] = args.row_max != nullptr ? hn::Load(d, args.row_max + first_row + v * L) : hn::Zero(d);
  }
  for (int j = args.first; j < args.last; ++j) {
    const auto key = hn::Set(d, static_cast<T>(j));
    for (int v = 0; v < vectors; ++v) {
      const int row = first_row + v * L, at = j * args.lanes + row;
      const auto score = edit(hn::Load(d, args.scores + at), key, at, row);
      highest[v] = max_of_numbers(highest[v], score);
      hn::Store(score, d, args.scores + at);
    }
  }
  if (args.row_max == nullptr) return;
  for (int v = 0; v < vectors; ++v) hn::Store(highest[v], d, args.row_max + first_row + v * L);
}

template <class T, class Edit>
HWY_INLINE void for_each_vector(const EditArgs<T>& args, Edit edit) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  if (args.lanes == 2 * L) return for_each_key<2>(args, 0, edit);
  if (args.lanes >= L) {
    for (int row = 0; row < args.lanes; row += L) for_each_key<1>(args, row, edit);
    return;
  }
  const int keys_per_vector = L / args.lanes;
  HWY_ALIGN T offsets[L];
  for (int i = 0; i < L; ++i) offsets[i] = static_cast<T>(i / args.lanes);
  const auto offset = hn::Load(d, offsets);
  for (int j = args.first; j < args.last; j += keys_per_vector) {
    T* at = args.scores + j * args.lanes;
    hn::Store(edit(hn::Load(d, at), hn::Add(offset, hn::Set(d, static_cast<T>(j))), j * args.lanes, 0), d, at);
  }
}

template <class T>
void softcap(const EditArgs<T>& args) {
  const Tag<T> d;
  const auto cap = hn::Set(d, args.cap), inverse = hn::Set(d, T(1) / args.cap);
  for_each_vector(args, [&](auto score, auto, int, int) { return hn::Mul(cap, tanh(d, hn::Mul(score, inverse))); });
}

template <class T>
void add(const EditArgs<T>& args) {
  const Tag<T> d;
  const auto excluded = hn::Set(d, -std::numeric_limits<T>::infinity());
  for_each_vector(args, [&](auto score, auto, int at, int) {
    const auto added = hn::Load(d, args.added + at);
    // A score of NaN or +inf must not survive exclusion, so -inf is chosen, not added.
    return hn::IfThenElse(hn::Eq(added, excluded), excluded, hn::Add(score, added));
  });
}

template <class T>
void alibi(const EditArgs<T>& args) {
  const Tag<T> d;
  for_each_vector(args, [&](auto score, auto key, int, int row) {
    const auto distance = hn::Abs(hn::Sub(hn::Load(d, args.positions + row), key));
    return hn::NegMulAdd(hn::Load(d, args.slopes + row), distance, score);
  });
}

template <class T>
void limit(const EditArgs<T>& args) {
  const Tag<T> d;
  const auto excluded = hn::Set(d, -std::numeric_limits<T>::infinity());
  for_each_vector(args, [&](auto score, auto key, int, int row) {
    const auto seen =
        hn::And(hn::Ge(key, hn::Load(d, args.begins + row)), hn::Lt(key, hn::Load(d, args.ends + row)));
    return hn::IfThenElse(seen, score, excluded);
  });
}

template <class T>
void maximum(const EditArgs<T>& args) {
  for_each_vector(args, [](auto score, auto, int, int) { return score; });
}

template <class T>
constexpr EditKernels<T> edit_table = {softcap<T>, add<T>, alibi<T>, limit<T>, maximum<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const EditKernels<float>& edit_kernels() {
  return QKV_PICK(edit_table<float>);
}
template <>
const EditKernels<double>& edit_kernels() {
  return QKV_PICK(edit_table<double>);
}

}  // namespace qkv::kernels
#endif
