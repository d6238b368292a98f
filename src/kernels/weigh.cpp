// kernels/weigh.cpp: weights that are the scores themselves, dropout and columns' sums.
//
// The same code serves both layouts of a block (see block.h): with lanes below the vector's length a vector holds
// several keys. A row's results do not depend on the other rows of the block, nor on the layout.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/weigh.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <cstdint>

#include "kernels/block.h"
#include "kernels/column-inl.h"
#include "kernels/isa.h"
#include "kernels/random-inl.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// Sums are kept per (key modulo 16, row) and folded at the end: short chains, and the same order in every layout.
inline constexpr int sum_keys = 16;

// Folds partial sums, the first `rows` of which become those of the rows.
template <class T>
HWY_INLINE void fold(T* partial, int rows) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  for (int half = sum_keys / 2 * rows; half >= rows; half /= 2) {
    int i = 0;
    for (; i + L <= half; i += L) {
      hn::Store(hn::Add(hn::Load(d, partial + i), hn::Load(d, partial + half + i)), d, partial + i);
    }
    for (; i < half; ++i) partial[i] += partial[half + i];
  }
}

// Partial sums of one column of vectors.
template <class T>
struct Sums {
  HWY_ALIGN T weights[sum_keys * lanes_of<T>];
  HWY_ALIGN T entropies[sum_keys * lanes_of<T>];
  HWY_ALIGN T magnitudes[sum_keys * lanes_of<T>];
};

// Adds `some` vectors, `distance` apart, to the sums from `at` on, and then those a `step` behind them, `times` in all.
template <int some, bool with_entropy, class T>
HWY_INLINE void add_vectors(const T* weights, int distance, int step, int times, Sums<T>& sums, int at) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  Vec<T> sum[some], entropy[some], magnitude[some];
  for (int i = 0; i < some; ++i) {
    sum[i] = hn::Load(d, sums.weights + at + i * L);
    entropy[i] = with_entropy ? hn::Load(d, sums.entropies + at + i * L) : hn::Zero(d);
    magnitude[i] = with_entropy ? hn::Load(d, sums.magnitudes + at + i * L) : hn::Zero(d);
  }
  for (int n = 0; n < times; ++n, weights += step) {
    Vec<T> weight[some], logarithm[some];
    for (int i = 0; i < some; ++i) weight[i] = hn::Load(d, weights + i * distance);
    for (int i = 0; i < some; ++i) logarithm[i] = hn::Abs(weight[i]);
    for (int i = 0; i < some; ++i) sum[i] = hn::Add(sum[i], weight[i]);
    if constexpr (with_entropy) {
      for (int i = 0; i < some; ++i) magnitude[i] = hn::Add(magnitude[i], logarithm[i]);
      log2(d, logarithm);
      for (int i = 0; i < some; ++i) {
        // log2(0) is -inf, and 0 * -inf would be NaN.
        logarithm[i] = hn::IfThenZeroElse(hn::Eq(weight[i], hn::Zero(d)), logarithm[i]);
        entropy[i] = hn::MulAdd(weight[i], logarithm[i], entropy[i]);
      }
    }
  }
  for (int i = 0; i < some; ++i) {
    hn::Store(sum[i], d, sums.weights + at + i * L);
    if constexpr (with_entropy) hn::Store(entropy[i], d, sums.entropies + at + i * L);
    if constexpr (with_entropy) hn::Store(magnitude[i], d, sums.magnitudes + at + i * L);
  }
}

template <bool with_entropy, class T>
void add_up_rows(const WeighArgs<T>& args) {
  constexpr int L = lanes_of<T>;
  static_assert(L <= sum_keys);
  const Column<T> column(args.lanes);
  const int vectors = column.vectors(args.keys), group = sum_keys / column.keys, distance = column.distance;
  // What the last vector holds beyond the last key: nothing, where a vector is a key.
  std::fill(args.scores + args.keys * args.lanes, args.scores + vectors * column.keys * args.lanes, T(0));

  Sums<T> sums;
  for (int row = 0; row < args.lanes; row += column.rows) {
    for (T* partial : {sums.weights, sums.entropies, sums.magnitudes}) std::fill_n(partial, group * L, T(0));
    const auto add_groups = [&]<int some>() {
      for (int i = 0; i < group; i += some) {
        add_vectors<some, with_entropy>(args.scores + row + i * distance, distance, group * distance, vectors / group,
                                        sums, i * L);
      }
    };
    // Groups are powers of two.
    if (group >= 4) {
      add_groups.template operator()<4>();
    } else if (group == 2) {
      add_groups.template operator()<2>();
    } else {
      add_groups.template operator()<1>();
    }
    for (int n = vectors / group * group, i = 0; n < vectors; ++n, ++i) {
      add_vectors<1, with_entropy>(args.scores + row + n * distance, 0, 0, 1, sums, i * L);
    }
    fold(sums.weights, column.rows);
    if constexpr (with_entropy) fold(sums.entropies, column.rows);
    if constexpr (with_entropy) fold(sums.magnitudes, column.rows);
    for (int r = 0; r < column.rows; ++r) {
      args.sum[row + r] += sums.weights[r];
      args.rescale[row + r] = 1;
      if constexpr (with_entropy) args.entropy[row + r] += sums.entropies[r];
      if constexpr (with_entropy) args.max[row + r] += sums.magnitudes[r];
    }
  }
}

template <class T>
void add_up(const WeighArgs<T>& args) {
  args.entropy != nullptr ? add_up_rows<true>(args) : add_up_rows<false>(args);
}

// All bits of a lane set or none, from 32 of them to as many as T has.
template <class T, class V>
HWY_INLINE Vec<T> widened(V mask) {
  const Tag<T> d;
  if constexpr (sizeof(T) == sizeof(std::uint32_t)) {
    return hn::BitCast(d, mask);
  } else {
    const hn::RebindToSigned<hn::DFromV<V>> narrow;
    return hn::BitCast(d, hn::PromoteTo(hn::RebindToSigned<Tag<T>>(), hn::BitCast(narrow, mask)));
  }
}

// Lanes beyond the rows are left alone: their threshold is 0 and their factor 1. Bound by the multiplications (8 cycles
// a vector on Zen 3); several vectors at once were no faster.
template <class T>
void drop(const DropArgs<T>& args) {
  const Tag<T> d;
  const hn::Rebind<std::uint32_t, Tag<T>> bits;  // as many lanes
  constexpr int L = lanes_of<T>;
  const Column<T> column(args.lanes);
  const int vectors = column.vectors(args.keys), distance = column.distance;
  const auto next = hn::Set(bits, random_step * static_cast<std::uint32_t>(column.keys));
  for (int row = 0; row < args.lanes; row += column.rows) {
    HWY_ALIGN std::uint32_t starts[L], uppers[L], thresholds[L];
    HWY_ALIGN T factors[L];
    for (int i = 0; i < L; ++i) {
      const int r = row + i % column.rows, key = i / column.rows;
      const bool is_row = r < args.rows;
      const std::uint64_t row_key = is_row ? args.row_keys[r] : 0;
      starts[i] = static_cast<std::uint32_t>(args.first_key + key) * random_step + static_cast<std::uint32_t>(row_key);
      uppers[i] = static_cast<std::uint32_t>(row_key >> 32);
      thresholds[i] = is_row ? args.threshold : 0;
      factors[i] = is_row ? args.factor : T(1);
    }
    auto x = hn::Load(bits, starts);
    const auto upper = hn::Load(bits, uppers), threshold = hn::Load(bits, thresholds);
    const auto factor = hn::Load(d, factors);
    T* at = args.weights + row;
    for (int n = 0; n < vectors; ++n, at += distance, x = hn::Add(x, next)) {
      const auto random = random_bits(bits, x, upper);
      const auto is_kept = hn::VecFromMask(bits, hn::Eq(hn::Max(random, threshold), random));
      hn::Store(hn::And(widened<T>(is_kept), hn::Mul(hn::Load(d, at), factor)), d, at);
    }
  }
}

template <class T>
void mass(const MassArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const auto [weights, lanes, keys, factors, sums] = args;
  if (lanes == 2 * L) {
    const auto left = hn::Load(d, factors), right = hn::Load(d, factors + L);
    for (int j = 0; j < keys; ++j) {
      const T* at = weights + j * 2 * L;
      const auto sum = hn::MulAdd(hn::Load(d, at), left, hn::LoadU(d, sums + j * L));
      hn::StoreU(hn::MulAdd(hn::Load(d, at + L), right, sum), d, sums + j * L);
    }
    return;
  }
  for (int row = 0; row < lanes; row += L) {
    const auto factor = hn::Load(d, factors + row);
    for (int j = 0; j < keys; ++j) {
      const auto weight = hn::Load(d, weights + j * lanes + row);
      hn::StoreU(hn::MulAdd(weight, factor, hn::LoadU(d, sums + j * L)), d, sums + j * L);
    }
  }
}

template <class T>
constexpr WeighKernels<T> weigh_table = {add_up<T>, drop<T>, mass<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const WeighKernels<float>& weigh_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, weigh_table<float>);
}
template <>
const WeighKernels<double>& weigh_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, weigh_table<double>);
}

}  // namespace qkv::kernels
#endif
