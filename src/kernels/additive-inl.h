// kernels/additive-inl.h: the additive score, w . tanh(q + k), for panels and for decode.
//
// tanh(a + b) = 1 - 2 / (1 + e^2a e^2b), and the exponentials are taken once per element of the projections. A hidden
// unit then costs a multiply-add and its share of a division; two have one in common, and four where that cannot
// overflow:
//
//   w1 / A + w2 / B = (w1 B + w2 A) / (A B),   A = 1 + q1 k1,   B = 1 + q2 k2.
#if defined(QKV_KERNELS_ADDITIVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_ADDITIVE_INL_H_
#undef QKV_KERNELS_ADDITIVE_INL_H_
#else
#define QKV_KERNELS_ADDITIVE_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "kernels/keys-inl.h"
#include "kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

// The shapes of tiles. From 1 to 6 keys the speed is the same within 5 %; of tanh, 4 vectors together are a seventh
// faster than 2 (Zen 3). The baseline's are small.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
inline constexpr int additive_keys = 2;
inline constexpr int direct_vectors = 4;
#else
inline constexpr int additive_keys = 1;
inline constexpr int direct_vectors = 2;
#endif

// 1 / b and sum + a / b, the quotients to 3 units in the last place.
//
// Zen 3 divides 8 floats in 3 cycles, during which it has time for 4 multiply-adds; an estimated reciprocal with a step
// of Newton's takes more of these than a division (0.087 ns a unit instead of 0.070). With AVX-512 it is the other way
// round where division takes as long as 32 multiply-adds, as with Intel's.
template <class V>
inline constexpr bool divides_by_estimate = HWY_TARGET == HWY_AVX3&& std::is_same_v<hn::TFromV<V>, float>;

// 2 - b r for Newton's step from r, near 1 / b.
template <class V>
HWY_INLINE V newton_factor(V b, V r) {
  return hn::NegMulAdd(b, r, hn::Set(hn::DFromV<V>(), 2));
}
template <class V>
HWY_INLINE V reciprocal(V b) {
  if constexpr (divides_by_estimate<V>) {
    const V r = hn::ApproximateReciprocal(b);
    return hn::Mul(r, newton_factor(b, r));
  } else {
    return hn::Div(hn::Set(hn::DFromV<V>(), 1), b);
  }
}
template <class V>
HWY_INLINE V add_quotient(V sum, V a, V b) {
  if constexpr (divides_by_estimate<V>) {
    const V r = hn::ApproximateReciprocal(b);
    return hn::MulAdd(hn::Mul(a, r), newton_factor(b, r), sum);
  } else {
    return hn::Add(sum, hn::Div(a, b));
  }
}

// sum + w1 / (1 + q1 k1) + w2 / (1 + q2 k2)
template <class V>
HWY_INLINE V add_two_units(V sum, V w1, V w2, V q1, V q2, V k1, V k2) {
  const V one = hn::Set(hn::DFromV<V>(), 1);
  const V a = hn::MulAdd(k1, q1, one), b = hn::MulAdd(k2, q2, one);
  return add_quotient(sum, hn::MulAdd(w1, b, hn::Mul(w2, a)), hn::Mul(a, b));
}

// Whether four units of a panel have a division in common where they can; it costs size.
template <class T>
inline constexpr bool shares_by_four = hot<T>;

// sum + w1 / (1 + q1 k1) + ... + w4 / (1 + q4 k4)
template <class V>
HWY_INLINE V add_four_units(V sum, const V (&w)[4], const V (&q)[4], const V (&k)[4]) {
  const V one = hn::Set(hn::DFromV<V>(), 1);
  const V a = hn::MulAdd(k[0], q[0], one), b = hn::MulAdd(k[1], q[1], one);
  const V c = hn::MulAdd(k[2], q[2], one), d = hn::MulAdd(k[3], q[3], one);
  const V ab = hn::Mul(a, b), cd = hn::Mul(c, d);
  const V over_ab = hn::MulAdd(w[0], b, hn::Mul(w[1], a)), over_cd = hn::MulAdd(w[2], d, hn::Mul(w[3], c));
  return add_quotient(sum, hn::MulAdd(over_ab, cd, hn::Mul(over_cd, ab)), hn::Mul(ab, cd));
}
template <class V>
HWY_INLINE V add_one_unit(V sum, V w, V q, V k) {
  return add_quotient(sum, w, hn::MulAdd(k, q, hn::Set(hn::DFromV<V>(), 1)));
}

// Whether the product of four denominators, times a weight, does not overflow, as is usual. NaN does not count: rows
// and keys must not see that of others.
template <class T>
HWY_INLINE bool fours_are_small(const ScoreArgs<T>& args) {
  constexpr T limit = 0x1p30f;
  const T* keys = static_cast<const T*>(args.keys) + args.first * args.key_stride;
  const T query = largest_magnitude(args.queries, 0, 1, args.depth * args.lanes),
          key = largest_magnitude(keys, args.key_stride, args.last - args.first, args.depth);
  return query * key < limit && largest_magnitude(args.hidden, 0, 1, args.depth) < limit;
}

template <class T>
void additive_of_panel(const ScoreArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const auto offset = hn::Set(d, args.offset);
  const T *queries = args.queries, *hidden = args.hidden;
  const std::ptrdiff_t key_stride = args.key_stride;
  const int depth = args.depth, depth_by_four = shares_by_four<T> && fours_are_small(args) ? depth : 0;
  for_each_part<T>(args.lanes, [&]<int vectors>(int part) {
    const int lanes = lanes_around<T, vectors>(args.lanes);
    fill_part<additive_keys, vectors>(args, part, [&]<int keys>(const T* key, Vec<T>(&sum)[keys][vectors]) {
      const T* query = queries + part;
      int e = 0;
      if constexpr (shares_by_four<T>) {
#pragma GCC unroll 1
        for (; e + 4 <= depth_by_four; e += 4, query += 4 * lanes) {
          Vec<T> w[4];
          for (int i = 0; i < 4; ++i) w[i] = hn::Set(d, hidden[e + i]);
          for (int v = 0; v < vectors; ++v) {
            Vec<T> q[4];
            for (int i = 0; i < 4; ++i) q[i] = hn::Load(d, query + i * lanes + v * L);
            for (int r = 0; r < keys; ++r) {
              const T* at = key + r * key_stride + e;
              const Vec<T> k[4] = {hn::Set(d, at[0]), hn::Set(d, at[1]), hn::Set(d, at[2]), hn::Set(d, at[3])};
              sum[r][v] = add_four_units(sum[r][v], w, q, k);
            }
          }
        }
      }
#pragma GCC unroll 1
      for (; e + 2 <= depth; e += 2, query += 2 * lanes) {
        const auto w1 = hn::Set(d, hidden[e]), w2 = hn::Set(d, hidden[e + 1]);
        for (int v = 0; v < vectors; ++v) {
          const auto q1 = hn::Load(d, query + v * L), q2 = hn::Load(d, query + lanes + v * L);
          for (int r = 0; r < keys; ++r) {
            const T* k = key + r * key_stride + e;
            sum[r][v] = add_two_units(sum[r][v], w1, w2, q1, q2, hn::Set(d, k[0]), hn::Set(d, k[1]));
          }
        }
      }
      if (e < depth) {
        const auto w = hn::Set(d, hidden[e]);
        for (int v = 0; v < vectors; ++v) {
          const auto q = hn::Load(d, query + v * L);
          for (int r = 0; r < keys; ++r) {
            sum[r][v] = add_one_unit(sum[r][v], w, q, hn::Set(d, key[r * key_stride + e]));
          }
        }
      }
      for (int r = 0; r < keys; ++r) {
        for (int v = 0; v < vectors; ++v) sum[r][v] = hn::NegMulAdd(hn::Set(d, T(2)), sum[r][v], offset);
      }
    });
  });
}

template <class T>
void additive_of_rows(const ScoreArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const T offset = args.offset;
  const T* hidden = args.hidden;
  const int depth = args.depth;
  const std::ptrdiff_t stride = padded_depth<T>(depth);
  fill_rows(args, stride, [&]<int rows>(const T* key, const T* queries, T* scores) {
    Vec<T> sum[rows];
    for (int r = 0; r < rows; ++r) sum[r] = hn::Zero(d);
    for_each_pair<T>(
        depth,
        [&](int c, auto load1, auto load2) {
          const auto w1 = load1(hidden + c), w2 = load2(hidden + c + L);
          const auto k1 = load1(key + c), k2 = load2(key + c + L);
          for (int r = 0; r < rows; ++r) {
            const T* q = queries + r * stride + c;
            sum[r] = add_two_units(sum[r], w1, w2, hn::Load(d, q), hn::Load(d, q + L), k1, k2);
          }
        },
        [&](int c, auto load) {
          const auto w = load(hidden + c), k = load(key + c);
          for (int r = 0; r < rows; ++r) {
            sum[r] = add_one_unit(sum[r], w, hn::Load(d, queries + r * stride + c), k);
          }
        });
    for (int r = 0; r < rows; ++r) scores[r] = offset - 2 * hn::GetLane(hn::SumOfLanes(d, sum[r]));
  });
}

template <class T>
void additive_direct_of_panel(const ScoreArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const T *queries = args.queries, *hidden = args.hidden;
  const std::ptrdiff_t key_stride = args.key_stride;
  const int depth = args.depth;
  for_each_part<T>(args.lanes, [&]<int vectors>(int part) {
    const int lanes = lanes_around<T, vectors>(args.lanes);
    fill_part<direct_vectors / vectors, vectors>(args, part, [&]<int keys>(const T* key, Vec<T>(&sum)[keys][vectors]) {
#pragma GCC unroll 1
      for (int e = 0; e < depth; ++e) {
        Vec<T> x[keys * vectors];
        for (int v = 0; v < vectors; ++v) {
          const auto q = hn::Load(d, queries + e * lanes + part + v * L);
          for (int r = 0; r < keys; ++r) x[r * vectors + v] = hn::Add(q, hn::Set(d, key[r * key_stride + e]));
        }
        tanh(d, x);
        const auto w = hn::Set(d, hidden[e]);
        for (int i = 0; i < keys * vectors; ++i) {
          sum[i / vectors][i % vectors] = hn::MulAdd(w, x[i], sum[i / vectors][i % vectors]);
        }
      }
    });
  });
}

template <class T>
void additive_direct_of_rows(const ScoreArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const T* hidden = args.hidden;
  const int depth = args.depth;
  const std::ptrdiff_t stride = padded_depth<T>(depth);
  fill_rows(args, stride, [&]<int rows>(const T* key, const T* queries, T* scores) {
    Vec<T> sum[rows];
    for (int r = 0; r < rows; ++r) sum[r] = hn::Zero(d);
    for (int c = 0; c < depth; c += L) {
      const auto k = load_some<T>(key + c, depth - c), w = load_some<T>(hidden + c, depth - c);
      Vec<T> x[rows];
      for (int r = 0; r < rows; ++r) x[r] = hn::Add(k, hn::Load(d, queries + r * stride + c));
      tanh(d, x);
      for (int r = 0; r < rows; ++r) sum[r] = hn::MulAdd(w, x[r], sum[r]);
    }
    for (int r = 0; r < rows; ++r) scores[r] = hn::GetLane(hn::SumOfLanes(d, sum[r]));
  });
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
