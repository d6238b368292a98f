// kernels/distance-inl.h: scores by the distance of query and key, for panels and for decode.
//
// First the squared distances of the whole block, then the kernel's curve over the block, which costs 2 cycles a vector
// where the distances cost 36 (Zen 3, D = 64), and is the same code for both layouts.
#if defined(QKV_KERNELS_DISTANCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_DISTANCE_INL_H_
#undef QKV_KERNELS_DISTANCE_INL_H_
#else
#define QKV_KERNELS_DISTANCE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numbers>

#include "kernels/keys-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// Tiles as high as those of the dot product in panel.cpp. A difference takes no time from the multiply-add that squares
// it: Zen 3 does two of each in a cycle.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
template <int vectors>
inline constexpr int distance_keys = vectors == 2 ? 6 : 8;
#else
template <int vectors>
inline constexpr int distance_keys = 2;
#endif

// Coordinates that count differently are `scaled`, at the cost of a multiplication.
template <bool scaled, class T>
HWY_INLINE void squared_distances_in_panel(const ScoreArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const T *queries = args.queries, *factors = args.per_coordinate;
  const std::ptrdiff_t key_stride = args.key_stride;
  const int depth = args.depth;
  for_each_part<T>(args.lanes, [&]<int vectors>(int part) {
    const int lanes = lanes_around<T, vectors>(args.lanes);
    fill_part<distance_keys<vectors>, vectors>(args, part, [&]<int keys>(const T* key, Vec<T>(&sum)[keys][vectors]) {
      const T* query = queries + part;
#pragma GCC unroll 2
      for (int c = 0; c < depth; ++c, query += lanes) {
        Vec<T> q[vectors];
        for (int v = 0; v < vectors; ++v) q[v] = hn::Load(d, query + v * L);
        for (int r = 0; r < keys; ++r) {
          const auto k = hn::Set(d, key[r * key_stride + c]);
          for (int v = 0; v < vectors; ++v) {
            const auto difference = hn::Sub(k, q[v]);
            const auto counted = scaled ? hn::Mul(difference, hn::Set(d, factors[c])) : difference;
            sum[r][v] = hn::MulAdd(counted, difference, sum[r][v]);
          }
        }
      }
    });
  });
}

template <class T>
void squared_distances_of_panel(const ScoreArgs<T>& args) {
  args.per_coordinate == nullptr ? squared_distances_in_panel<false>(args) : squared_distances_in_panel<true>(args);
}

template <bool scaled, class T>
HWY_INLINE void squared_distances_in_rows(const ScoreArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const T* factors = args.per_coordinate;
  const int depth = args.depth;
  const std::ptrdiff_t stride = padded_depth<T>(depth);
  fill_rows(args, stride, [&]<int rows>(const T* key, const T* queries, T* scores) {
    Vec<T> even[rows], odd[rows];
    for (int r = 0; r < rows; ++r) even[r] = odd[r] = hn::Zero(d);
    const auto add = [&](Vec<T>(&sum)[rows], auto load, int c) {
      const Vec<T> k = load(key + c);
      for (int r = 0; r < rows; ++r) {
        const auto difference = hn::Sub(k, hn::Load(d, queries + r * stride + c));
        Vec<T> counted = difference;
        if constexpr (scaled) counted = hn::Mul(difference, load(factors + c));
        sum[r] = hn::MulAdd(counted, difference, sum[r]);
      }
    };
    for_each_pair<T>(
        depth,
        [&](int c, auto load1, auto load2) {
          add(even, load1, c);
          add(odd, load2, c + L);
        },
        [&](int c, auto load) { add(even, load, c); });
    for (int r = 0; r < rows; ++r) scores[r] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even[r], odd[r])));
  });
}

template <class T>
void squared_distances_of_rows(const ScoreArgs<T>& args) {
  args.per_coordinate == nullptr ? squared_distances_in_rows<false>(args) : squared_distances_in_rows<true>(args);
}

// Replaces each squared distance s of the block by curve(s, per_row), and raises row_max where that is asked for.
template <class T, class Curve>
HWY_INLINE void bend(const ScoreArgs<T>& args, const Curve& curve) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  T* scores = args.scores;
  const int lanes = args.lanes, first = args.first * lanes, last = args.last * lanes, step = std::max(lanes, L);
  for (int row = 0; row < lanes; row += L) {
    const auto per_row = hn::Load(d, args.per_row + row);
    auto highest = args.row_max != nullptr ? hn::Load(d, args.row_max + row) : hn::Zero(d);
    int at = first + row;
    for (; at + L <= last; at += step) {
      const auto score = curve(hn::LoadU(d, scores + at), per_row);
      highest = max_of_numbers(highest, score);
      hn::StoreU(score, d, scores + at);
    }
    if (args.row_max != nullptr) hn::Store(highest, d, args.row_max + row);
    // Only where a vector holds several keys.
    if (at < last) {
      HWY_ALIGN T rest[static_cast<std::size_t>(L)] = {};
      std::copy(scores + at, scores + last, rest);
      hn::Store(curve(hn::Load(d, rest), per_row), d, rest);
      std::copy_n(rest, last - at, scores + at);
    }
  }
}

// `inside` where square <= 1, `outside` where it is more, and NaN where it is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V box(D d, V square, hn::TFromD<D> inside, hn::TFromD<D> outside) {
  const auto boxed = hn::IfThenElse(hn::Le(square, hn::Set(d, 1)), hn::Set(d, inside), hn::Set(d, outside));
  return hn::IfThenElse(hn::IsNaN(square), square, boxed);
}

// What is bent is s, with u^2 = s * w.
template <class T>
void bend_to_kernel(const ScoreArgs<T>& args) {
  const Tag<T> d;
  const auto zero = hn::Zero(d), one = hn::Set(d, T(1)), three_quarters = hn::Set(d, T(0.75));
  constexpr auto log2e = static_cast<T>(std::numbers::log2e);
  switch (args.kernel) {
    case DistanceKernel::gaussian:
      return bend(args, [=](auto s, auto w) { return exp2(d, hn::Mul(hn::Mul(s, w), hn::Set(d, -log2e / 2))); });
    case DistanceKernel::laplace:
      return bend(args, [=](auto s, auto w) { return exp2(d, hn::Mul(hn::Sqrt(hn::Mul(s, w)), hn::Set(d, -log2e))); });
    case DistanceKernel::boxcar:
      return bend(args, [=](auto s, auto w) { return box(d, hn::Mul(s, w), T(1), T(0)); });
    case DistanceKernel::triangular:
      return bend(args, [=](auto s, auto w) { return at_least(d, hn::Sub(one, hn::Sqrt(hn::Mul(s, w))), zero); });
    case DistanceKernel::epanechnikov:
      return bend(args,
                  [=](auto s, auto w) { return hn::Mul(three_quarters, at_least(d, hn::NegMulAdd(s, w, one), zero)); });
  }
}

// The logarithm of 0, which is the kernel's value outside of its support, is -inf.
template <class T>
void bend_to_logarithm(const ScoreArgs<T>& args) {
  const Tag<T> d;
  const auto zero = hn::Zero(d), one = hn::Set(d, T(1)), three_quarters = hn::Set(d, T(0.75));
  const auto octave = hn::Set(d, static_cast<T>(static_cast<double>(args.unit) * std::numbers::ln2));
  switch (args.kernel) {
    case DistanceKernel::gaussian:
      return bend(args, [half = hn::Set(d, -args.unit / 2)](auto s, auto w) { return hn::Mul(hn::Mul(s, w), half); });
    case DistanceKernel::laplace:
      return bend(args,
                  [unit = hn::Set(d, -args.unit)](auto s, auto w) { return hn::Mul(hn::Sqrt(hn::Mul(s, w)), unit); });
    case DistanceKernel::boxcar:
      return bend(args,
                  [=](auto s, auto w) { return box(d, hn::Mul(s, w), T(0), -std::numeric_limits<T>::infinity()); });
    case DistanceKernel::triangular:
      return bend(args, [=](auto s, auto w) {
        return hn::Mul(octave, log2(d, at_least(d, hn::Sub(one, hn::Sqrt(hn::Mul(s, w))), zero)));
      });
    case DistanceKernel::epanechnikov:
      return bend(args, [=](auto s, auto w) {
        return hn::Mul(octave, log2(d, hn::Mul(three_quarters, at_least(d, hn::NegMulAdd(s, w, one), zero))));
      });
  }
}

template <class T, void (*squared_distances)(const ScoreArgs<T>&)>
void distance(const ScoreArgs<T>& args) {
  ScoreArgs<T> squares = args;
  squares.row_max = nullptr;
  squared_distances(squares);
  args.unit == 0 ? bend_to_kernel(args) : bend_to_logarithm(args);
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
