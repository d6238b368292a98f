// kernels/gru.cpp: the gates of a gated recurrent unit.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gru.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <numbers>

#include "base/random.h"
#include "kernels/gru.h"
#include "kernels/isa.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

// 1 / (1 + e^-x), by the exponential that does not overflow; it keeps its digits where it is small. NaN stays NaN.
template <int count, class D, class V = hn::Vec<D>>
HWY_INLINE void sigmoid(D d, V (&x)[count]) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1)), unit = hn::Set(d, static_cast<T>(-std::numbers::log2e));
  V power[count];
  for (int i = 0; i < count; ++i) power[i] = hn::Mul(hn::Abs(x[i]), unit);
  exp2(d, power);
  for (int i = 0; i < count; ++i) {
    const V numerator = hn::IfThenElse(hn::Lt(x[i], hn::Zero(d)), power[i], one);
    x[i] = hn::Div(numerator, hn::Add(one, power[i]));
  }
}

// A row's arrays, from some element on. r, z and n of a gate lie `width` apart.
template <class T>
struct ForwardRow {
  T* gates;
  const T* state;
  std::ptrdiff_t width;
  const T* before;
  T *hidden, *after, *next;  // next may be null

  ForwardRow from(int i) const {
    return {gates + i, state + i, width, before + i, hidden + i, after + i, next == nullptr ? nullptr : next + i};
  }
};

// Two vectors of elements at once: the chains of exponentials are long.
inline constexpr int vectors = 2;
template <class T>
inline constexpr int elements = vectors* lanes_of<T>;

template <class T>
HWY_INLINE void forward_elements(const ForwardRow<T>& row) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  Vec<T> rz[2 * vectors], n[vectors];
  for (int v = 0; v < vectors; ++v) {
    const int i = v * L;
    rz[v] = hn::Add(hn::LoadU(d, row.gates + i), hn::LoadU(d, row.state + i));
    rz[vectors + v] = hn::Add(hn::LoadU(d, row.gates + row.width + i), hn::LoadU(d, row.state + row.width + i));
  }
  sigmoid(d, rz);
  for (int v = 0; v < vectors; ++v) {
    const int i = v * L;
    const auto hidden = hn::LoadU(d, row.state + 2 * row.width + i);
    hn::StoreU(hidden, d, row.hidden + i);
    n[v] = hn::MulAdd(rz[v], hidden, hn::LoadU(d, row.gates + 2 * row.width + i));
  }
  tanh(d, n);
  for (int v = 0; v < vectors; ++v) {
    const int i = v * L;
    const auto z = rz[vectors + v], after = hn::MulAdd(z, hn::Sub(hn::LoadU(d, row.before + i), n[v]), n[v]);
    hn::StoreU(rz[v], d, row.gates + i);
    hn::StoreU(z, d, row.gates + row.width + i);
    hn::StoreU(n[v], d, row.gates + 2 * row.width + i);
    hn::StoreU(after, d, row.after + i);
    if (row.next != nullptr) hn::StoreU(after, d, row.next + i);
  }
}

// Memory beside, for the last elements of a row. The same code then computes them, for the size of it.
template <class T>
struct ForwardRest {
  static constexpr int width = elements<T>;
  HWY_ALIGN T gates[3 * width], state[3 * width], before[width], hidden[width], after[width];

  HWY_NOINLINE ForwardRow<T> fetch(const ForwardRow<T>& row, int count) {
    for (int g = 0; g < 3; ++g) {
      std::copy_n(row.gates + g * row.width, count, gates + g * width);
      std::copy_n(row.state + g * row.width, count, state + g * width);
    }
    std::copy_n(row.before, count, before);
    return {gates, state, width, before, hidden, after, nullptr};
  }
  HWY_NOINLINE void store(const ForwardRow<T>& row, int count) {
    for (int g = 0; g < 3; ++g) std::copy_n(gates + g * width, count, row.gates + g * row.width);
    std::copy_n(hidden, count, row.hidden);
    std::copy_n(after, count, row.after);
    if (row.next != nullptr) std::copy_n(after, count, row.next);
  }
};

template <class T>
void forward(const GruForwardArgs<T>& args) {
  const std::ptrdiff_t width = args.width;
  ForwardRest<T> rest = {};
  for (int r = 0; r < args.rows; ++r) {
    const ForwardRow<T> row = {args.gates + 3 * r * width,
                               args.state + 3 * r * width,
                               width,
                               args.before + r * width,
                               args.hidden + r * width,
                               args.after + r * args.after_stride,
                               r < args.continuing ? args.next + r * width : nullptr};
    for (int i = 0; i < args.width; i += elements<T>) {
      const int count = std::min(elements<T>, args.width - i);
      const ForwardRow<T> part = row.from(i);
      const bool is_whole = count == elements<T>;
      forward_elements(is_whole ? part : rest.fetch(part, count));
      if (!is_whole) rest.store(part, count);
    }
  }
}

template <class T>
struct BackwardRow {
  const T* gates;
  std::ptrdiff_t width;
  const T *hidden, *before, *upstream;  // upstream may be null
  T* carry;
  T* slopes;

  BackwardRow from(int i) const {
    return {gates + i, width,     hidden + i, before + i, upstream == nullptr ? nullptr : upstream + i,
            carry + i, slopes + i};
  }
};

template <class T>
HWY_INLINE void backward_vector(const BackwardRow<T>& row) {
  const Tag<T> d;
  const auto one = hn::Set(d, T(1));
  auto dafter = hn::LoadU(d, row.carry);
  if (row.upstream != nullptr) dafter = hn::Add(dafter, hn::LoadU(d, row.upstream));
  const auto r = hn::LoadU(d, row.gates), z = hn::LoadU(d, row.gates + row.width);
  const auto n = hn::LoadU(d, row.gates + 2 * row.width), hidden = hn::LoadU(d, row.hidden);
  const auto rest = hn::Sub(one, z);
  const auto di_n = hn::Mul(hn::Mul(dafter, rest), hn::NegMulAdd(n, n, one));
  const auto ds_n = hn::Mul(di_n, r);
  hn::StoreU(ds_n, d, row.slopes);
  hn::StoreU(hn::Mul(hn::Mul(ds_n, hidden), hn::Sub(one, r)), d, row.slopes + row.width);
  const auto dz = hn::Mul(dafter, hn::Sub(hn::LoadU(d, row.before), n));
  hn::StoreU(hn::Mul(dz, hn::Mul(z, rest)), d, row.slopes + 2 * row.width);
  hn::StoreU(di_n, d, row.slopes + 3 * row.width);
  hn::StoreU(hn::Mul(dafter, z), d, row.carry);
}

template <class T>
struct BackwardRest {
  static constexpr int width = lanes_of<T>;
  HWY_ALIGN T gates[3 * width], hidden[width], before[width], upstream[width], carry[width], slopes[4 * width];

  HWY_NOINLINE BackwardRow<T> fetch(const BackwardRow<T>& row, int count) {
    for (int g = 0; g < 3; ++g) std::copy_n(row.gates + g * row.width, count, gates + g * width);
    std::copy_n(row.hidden, count, hidden);
    std::copy_n(row.before, count, before);
    std::copy_n(row.carry, count, carry);
    if (row.upstream != nullptr) std::copy_n(row.upstream, count, upstream);
    return {gates, width, hidden, before, row.upstream == nullptr ? nullptr : upstream, carry, slopes};
  }
  HWY_NOINLINE void store(const BackwardRow<T>& row, int count) {
    for (int g = 0; g < 4; ++g) std::copy_n(slopes + g * width, count, row.slopes + g * row.width);
    std::copy_n(carry, count, row.carry);
  }
};

template <class T>
void backward(const GruBackwardArgs<T>& args) {
  constexpr int L = lanes_of<T>;
  const std::ptrdiff_t width = args.width;
  BackwardRest<T> rest = {};
  for (int r = 0; r < args.rows; ++r) {
    const BackwardRow<T> row = {args.gates + 3 * r * width,
                                width,
                                args.hidden + r * width,
                                args.before + r * width,
                                args.upstream == nullptr ? nullptr : args.upstream + r * args.upstream_stride,
                                args.carry + r * width,
                                args.slopes + 4 * r * width};
    for (int i = 0; i < args.width; i += L) {
      const int count = std::min(L, args.width - i);
      const BackwardRow<T> part = row.from(i);
      backward_vector(count == L ? part : rest.fetch(part, count));
      if (count < L) rest.store(part, count);
    }
  }
}

template <class T>
constexpr GruKernels<T> gru_table = {forward<T>, backward<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const GruKernels<float>& gru_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, gru_table<float>);
}
template <>
const GruKernels<double>& gru_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, gru_table<double>);
}

template <class T>
void drop_row(T* row, std::int64_t width, std::uint64_t key, std::uint32_t threshold, T factor) {
  for (std::int64_t i = 0; i < width; ++i) row[i] = random_bits(key, i) < threshold ? T(0) : row[i] * factor;
}
template void drop_row(float*, std::int64_t, std::uint64_t, std::uint32_t, float);
template void drop_row(double*, std::int64_t, std::uint64_t, std::uint32_t, double);

}  // namespace qkv::kernels
#endif
