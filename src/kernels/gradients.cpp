// kernels/gradients.cpp: the five products of the backward pass. Two of them, the scores and the gradients of the
// weights, are made tile by tile as in panel.cpp, and finished while they are in registers; the gradient of the queries
// is panel.cpp's pool; those of keys and values are gathered here, from all panels of a group at once: with one panel
// after the other, reading and writing the sums would cost as much as the products.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gradients.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <numbers>

#include "kernels/additive_gradients-inl.h"
#include "kernels/gradients.h"
#include "kernels/isa.h"
#include "kernels/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// Queries times keys of a block, whose weights and slopes stay in the second-level cache. Zen 3, share of peak at T =
// 512 and 1024, D = 64: 83 and 83 % with 8 panels by 192 keys; 6 by 192 had 81 and 84, 8 by 128 81 and 83, 6 by 128 81
// and 82. `qkv bench backward` measures again.
#if HWY_TARGET == HWY_AVX3
inline constexpr int gradient_panels = 3;
inline constexpr int gradient_keys = 192;
#elif HWY_TARGET == HWY_AVX2
inline constexpr int gradient_panels = 8;
inline constexpr int gradient_keys = 192;
#else
inline constexpr int gradient_panels = 6;
inline constexpr int gradient_keys = 128;
#endif

// Tiles of gathered sums are as those of pooled values.
template <class T, int vectors>
inline constexpr int gather_keys = pool_rows<T, vectors>;

// A tile of products, that starts from start(v) and is handed to finish(sum, place in the block, v).
template <int keys, int vectors, class T, class Start, class Finish>
HWY_INLINE void product_tile(const RecallArgs<T>& args, int j, const Start& start, const Finish& finish) {
  constexpr int L = lanes_of<T>;
  Vec<T> sum[keys][vectors];
  for (int v = 0; v < vectors; ++v) {
    const auto first = start(v);
    for (int r = 0; r < keys; ++r) sum[r][v] = first;
  }
  accumulate(args.keys + j * args.key_stride, args.key_stride, 1, args.queries, vectors * L, args.depth, sum);
  finish(sum, j * vectors * L);
}

template <class T>
void weigh(const RecallArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  with_vectors<T>(args.lanes, [&]<int vectors>() {
    const auto start = [&](int v) { return hn::Neg(hn::Load(d, args.per_row + v * L)); };
    for_each_score_tile<T, vectors, false>(args.first, args.last, [&]<int keys>(int j) {
      product_tile<keys, vectors>(args, j, start, [&](Vec<T>(&sum)[keys][vectors], int at) {
        T* weights = args.weights + at;
#pragma GCC unroll 16
        for (int r = 0; r < keys; ++r) {
          exp2<Reach::weights>(d, sum[r]);
          for (int v = 0; v < vectors; ++v) hn::Store(sum[r][v], d, weights + (r * vectors + v) * L);
        }
      });
    });
  });
}

template <class T>
void chain(const RecallArgs<T>& args) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const auto times = hn::Set(d, args.factor);
  with_vectors<T>(args.lanes, [&]<int vectors>() {
    const auto start = [&](int v) { return hn::Load(d, args.per_row + v * L); };
    for_each_score_tile<T, vectors, false>(args.first, args.last, [&]<int keys>(int j) {
      product_tile<keys, vectors>(args, j, start, [&](Vec<T>(&sum)[keys][vectors], int at) {
        const T* weights = args.weights + at;
        T* slopes = args.slopes + at;
#pragma GCC unroll 16  // all, so that the sums stay in registers
        for (int r = 0; r < keys; ++r) {
          for (int v = 0; v < vectors; ++v) {
            const auto weight = hn::Load(d, weights + (r * vectors + v) * L);
            const auto slope = hn::Mul(hn::Mul(weight, times), sum[r][v]);
            hn::Store(hn::IfThenElseZero(hn::Ne(weight, hn::Zero(d)), slope), d, slopes + (r * vectors + v) * L);
          }
        }
      });
    });
  });
}

// Stores edit(weight, place, row) for every vector of the block.
template <class T, class Edit>
HWY_INLINE void for_each_vector(const ChainArgs<T>& args, T* target, const Edit& edit) {
  constexpr int L = lanes_of<T>;
  const int lanes = args.lanes, keys = args.keys;
  for (int row = 0; row < lanes; row += L) {
    for (int j = 0; j < keys; ++j) {
      const int at = j * lanes + row;
      hn::Store(edit(at, row), Tag<T>(), target + at);
    }
  }
}

template <class T>
void exponentials(const ChainArgs<T>& args) {
  const Tag<T> d;
  const T *weights = args.weights, *reference = args.reference;
  for_each_vector(args, args.weights, [=](int at, int row) {
    return exp2<Reach::weights>(d, hn::Sub(hn::Load(d, weights + at), hn::Load(d, reference + row)));
  });
}

template <class T>
void scale(const ChainArgs<T>& args) {
  const Tag<T> d;
  const T *weights = args.weights, *reference = args.reference;
  for_each_vector(args, args.weights,
                  [=](int at, int row) { return hn::Mul(hn::Load(d, weights + at), hn::Load(d, reference + row)); });
}

template <class T>
void chain_any(const ChainArgs<T>& args) {
  const Tag<T> d;
  const T *weights = args.weights, *slopes = args.slopes, *added = args.added, *entropy = args.entropy,
          *multiplier = args.multiplier;
  const bool keep_zeros = args.keep_zeros;
  const auto times = hn::Set(d, args.factor);
  for_each_vector(args, args.slopes, [=](int at, int row) {
    const auto weight = hn::Load(d, weights + at);
    auto slope = hn::Add(hn::Load(d, slopes + at), hn::Load(d, added + row));
    const auto factor = hn::Mul(multiplier != nullptr ? hn::Load(d, multiplier + row) : weight, times);
    const auto nothing = hn::Eq(weight, hn::Zero(d));
    if (entropy == nullptr) {
      slope = hn::Mul(slope, factor);
      return keep_zeros ? slope : hn::IfThenZeroElse(nothing, slope);
    }
    const auto logarithm = hn::Mul(log2(d, weight), hn::Set(d, static_cast<T>(std::numbers::ln2)));
    const auto of_entropy = hn::Load(d, entropy + row);
    const auto with_entropy = hn::IfThenZeroElse(nothing, hn::Mul(hn::NegMulAdd(of_entropy, logarithm, slope), factor));
    slope = hn::Mul(slope, factor);
    const auto without = keep_zeros ? slope : hn::IfThenZeroElse(nothing, slope);
    return hn::IfThenElse(hn::Eq(of_entropy, hn::Zero(d)), without, with_entropy);  // whatever the logarithm is
  });
}

template <int keys, int vectors, class T>
HWY_INLINE void gather_tile(const GatherArgs<T>& args, int j, int column, std::ptrdiff_t strip_offset) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  T* sums = args.sums + j * args.sum_stride + column;
  Vec<T> sum[keys][vectors];
  for (int r = 0; r < keys; ++r) {
    for (int v = 0; v < vectors; ++v) {
      sum[r][v] = hn::Load(d, sums + r * args.sum_stride + v * L);
      __builtin_prefetch(sums + (r + keys) * args.sum_stride + v * L, 1);
    }
  }
  for (int p = 0; p < args.count; ++p) {
    const GatherPanel<T>& panel = args.panels[p];
    if (j + keys <= panel.first || j >= panel.last) continue;
    // What is multiplied next: weights come from the second-level cache, a tile's at once.
    const T* next = p + 1 < args.count ? args.panels[p + 1].weights + j * panel.lanes
                                       : args.panels[0].weights + (j + keys) * panel.lanes;
    for (int r = 0; r < keys; ++r) {
      for (int v = 0; v < max_vectors<T>; ++v) __builtin_prefetch(next + (r * max_vectors<T> + v) * L);
    }
    accumulate(panel.weights + j * panel.lanes, panel.lanes, 1, panel.values + strip_offset, strip_width<T>, panel.rows,
               sum, args.strip_stride);
  }
  for (int r = 0; r < keys; ++r) {
    for (int v = 0; v < vectors; ++v) hn::Store(sum[r][v], d, sums + r * args.sum_stride + v * L);
  }
}

template <int vectors, class T>
HWY_INLINE void gather_columns(const GatherArgs<T>& args, int column, std::ptrdiff_t strip_offset) {
  constexpr int keys = gather_keys<T, vectors>;
  int j = 0;
  for (; j + keys <= args.keys; j += keys) gather_tile<keys, vectors>(args, j, column, strip_offset);
  if constexpr (4 < keys) {
    for (; j + 4 <= args.keys; j += 4) gather_tile<4, vectors>(args, j, column, strip_offset);
  }
  for (; j < args.keys; ++j) gather_tile<1, vectors>(args, j, column, strip_offset);
}

template <class T>
void gather(const GatherArgs<T>& args) {
  for_each_strip<T, false>(args.width, args.strip_stride, [&]<int vectors>(int column, std::ptrdiff_t strip_offset) {
    gather_columns<vectors>(args, column, strip_offset);
  });
}

template <class T, class Derivative>
HWY_INLINE void for_each_square(const DistanceGradientArgs<T>& args, const Derivative& derivative) {
  const Tag<T> d;
  for (int i = 0; i < args.count; i += lanes_of<T>) {
    const auto slope = hn::Load(d, args.slopes + i);
    const auto changed = hn::Mul(slope, derivative(hn::Load(d, args.squares + i)));
    hn::Store(hn::IfThenZeroElse(hn::Eq(slope, hn::Zero(d)), changed), d, args.slopes + i);
  }
}

template <class T>
void distance(const DistanceGradientArgs<T>& args) {
  const Tag<T> d;
  const auto half = hn::Set(d, T(-0.5)), one = hn::Set(d, T(1)), zero = hn::Zero(d);
  const bool by_value = args.by_value;
  // -1 / (2 u), and 0 at the kink.
  const auto root = [=](auto square) {
    return hn::IfThenZeroElse(hn::Eq(square, zero), hn::Div(half, hn::Sqrt(square)));
  };
  switch (args.kernel) {
    case DistanceKernel::gaussian:
      return for_each_square(args, [=](auto) { return half; });
    case DistanceKernel::laplace:
      return for_each_square(args, root);
    case DistanceKernel::boxcar:
      return for_each_square(args, [=](auto) { return zero; });
    case DistanceKernel::triangular:
      return for_each_square(args, [=](auto square) {
        const auto slope = root(square);
        return by_value ? slope : hn::Div(slope, hn::Sub(one, hn::Sqrt(square)));
      });
    case DistanceKernel::epanechnikov:
      return for_each_square(args, [=](auto square) {
        if (by_value) return hn::Set(d, T(-0.75));
        // The forward pass, with fewer roundings, may have seen a key that lies on the edge.
        const auto inside = hn::Sub(one, square);
        return hn::IfThenZeroElse(hn::Le(inside, zero), hn::Div(hn::Neg(one), inside));
      });
  }
}

template <class T>
constexpr GradientKernels<T> gradient_table = {gradient_panels,
                                               gradient_keys,
                                               gather_keys<T, strip_vectors>,
                                               weigh<T>,
                                               chain<T>,
                                               exponentials<T>,
                                               scale<T>,
                                               chain_any<T>,
                                               gather<T>,
                                               additive_gradients<FromExponentials, T>,
                                               additive_gradients<FromProjections, T>,
                                               additive_rates<FromExponentials, T>,
                                               additive_rates<FromProjections, T>,
                                               distance<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const GradientKernels<float>& gradient_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, gradient_table<float>);
}
template <>
const GradientKernels<double>& gradient_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, gradient_table<double>);
}

}  // namespace qkv::kernels
#endif
