// kernels/rows.cpp: small loops over rows of numbers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/isa.h"
#include "kernels/rows.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

template <class T>
constexpr T infinity = std::numeric_limits<T>::infinity();

template <class T>
void add_bias(const T* bias, int count, T factor, T* target) {
  const Tag<T> d;
  constexpr T largest = std::numeric_limits<T>::max();
  const auto upper = hn::Set(d, largest), lower = hn::Set(d, -largest), f = hn::Set(d, factor);
  int i = 0;
  for (; i + lanes_of<T> <= count; i += lanes_of<T>) {
    const auto a = hn::LoadU(d, bias + i), b = hn::LoadU(d, target + i);
    const auto finite = hn::And(hn::Le(hn::Abs(a), upper), hn::Le(hn::Abs(b), upper));
    const auto sum = hn::MulAdd(a, f, b);
    hn::StoreU(hn::IfThenElse(finite, hn::Max(lower, hn::Min(upper, sum)), sum), d, target + i);
  }
  for (; i < count; ++i) {
    const bool finite = std::abs(bias[i]) <= largest && std::abs(target[i]) <= largest;
    target[i] += bias[i] * factor;
    if (finite) target[i] = std::clamp(target[i], -largest, largest);
  }
}

template <class T>
void exclude(const std::uint8_t* flags, bool kept, int count, T* target) {
  int i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, float>) {
    const Tag<float> d;
    const hn::RebindToSigned<Tag<float>> di;
    const hn::Rebind<std::uint8_t, Tag<float>> bytes;
    for (; i + lanes_of<float> <= count; i += lanes_of<float>) {
      const auto unset = hn::RebindMask(d, hn::Eq(hn::PromoteTo(di, hn::LoadU(bytes, flags + i)), hn::Zero(di)));
      const auto value = hn::LoadU(d, target + i), excluded = hn::Set(d, -infinity<float>);
      hn::StoreU(kept ? hn::IfThenElse(unset, excluded, value) : hn::IfThenElse(unset, value, excluded), d, target + i);
    }
  }
#endif
  for (; i < count; ++i) {
    if ((flags[i] != 0) != kept) target[i] = -infinity<T>;
  }
}

template <class T>
unsigned survey(const T* row, int count, T* seen) {
  const Tag<T> d;
  const auto excluded = hn::Set(d, -infinity<T>), zero = hn::Zero(d);
  auto some_excluded = hn::Ne(zero, zero), all_excluded = hn::Eq(zero, zero), all_zero = all_excluded;
  int i = 0;
  for (; i + lanes_of<T> <= count; i += lanes_of<T>) {
    const auto value = hn::LoadU(d, row + i);
    const auto is_excluded = hn::Eq(value, excluded);
    hn::StoreU(hn::IfThenElse(is_excluded, hn::LoadU(d, seen + i), zero), d, seen + i);
    some_excluded = hn::Or(some_excluded, is_excluded);
    all_excluded = hn::And(all_excluded, is_excluded);
    all_zero = hn::And(all_zero, hn::Or(is_excluded, hn::Eq(value, zero)));
  }
  unsigned found = 0;
  if (!hn::AllFalse(d, some_excluded)) found |= found_excluded;
  if (!hn::AllTrue(d, all_excluded)) found |= found_kept;
  if (!hn::AllTrue(d, all_zero)) found |= found_nonzero;
  for (; i < count; ++i) {
    if (row[i] != -infinity<T>) seen[i] = 0;
    found |= row[i] == -infinity<T> ? found_excluded : row[i] == T(0) ? found_kept : found_kept | found_nonzero;
  }
  return found;
}

// Stores words of 64 bits, of which the vectors hold halves.
template <class D>
HWY_INLINE void store_bits(D d, hn::Vec<D> low, hn::Vec<D> high, RowBits* words) {
  hn::StoreInterleaved2(low, high, d, reinterpret_cast<std::uint32_t*>(words));
}

template <class T>
void gather_signs(const T* row, std::ptrdiff_t stride, int rows, int count, RowBits* words) {
  int j = 0;
  if constexpr (std::is_same_v<T, float>) {
    const Tag<T> d;
    const hn::RebindToUnsigned<Tag<T>> bits;
    for (; j + lanes_of<T> <= count; j += lanes_of<T>) {
      const auto of_rows = [&](int first, int last) {
        auto word = hn::Zero(bits);
        for (int r = last - 1; r >= first; --r) {
          const auto sign = hn::ShiftRight<31>(hn::BitCast(bits, hn::LoadU(d, row + r * stride + j)));
          word = hn::Or(hn::Add(word, word), sign);
        }
        return word;
      };
      store_bits(bits, of_rows(0, std::min(rows, 32)), of_rows(32, rows), words + j);
    }
  }
  for (; j < count; ++j) {
    words[j] = 0;
    for (int r = 0; r < rows; ++r) words[j] |= RowBits{std::signbit(row[r * stride + j])} << r;
  }
}

// Bytes first, each with the bits of eight rows, so that a vector has many keys.
void gather_flags(const std::uint8_t* flags, std::ptrdiff_t stride, bool kept, int rows, int count, RowBits* words) {
  int j = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  constexpr int eight = 8, bytes_of_half = 4;
  const hn::ScalableTag<std::uint8_t> bytes;
  const hn::ScalableTag<std::uint32_t> wide;
  const hn::Rebind<std::uint8_t, decltype(wide)> narrow;
  constexpr int N = hn::MaxLanes(bytes), L = hn::MaxLanes(wide);
  const auto none = hn::Zero(bytes), set_is = hn::Set(bytes, kept ? 0 : 0xff);
  HWY_ALIGN std::uint8_t of_rows[sizeof(RowBits)][N];
  for (; j + N <= count; j += N) {
    const int groups = (rows + eight - 1) / eight;
    for (int g = 0; g < groups; ++g) {
      auto byte = none;
      for (int r = std::min(rows, (g + 1) * eight) - 1; r >= g * eight; --r) {
        const auto unset = hn::VecFromMask(bytes, hn::Eq(hn::LoadU(bytes, flags + r * stride + j), none));
        byte = hn::Sub(hn::Add(byte, byte), hn::Xor(unset, set_is));  // all bits set are -1
      }
      hn::Store(byte, bytes, of_rows[g]);
    }
    for (int i = 0; i < N; i += L) {
      const auto join = [&](int first, int last) {
        auto word = hn::Zero(wide);
        for (int g = last - 1; g >= first; --g) {
          word = hn::Or(hn::ShiftLeft<eight>(word), hn::PromoteTo(wide, hn::Load(narrow, of_rows[g] + i)));
        }
        return word;
      };
      store_bits(wide, join(0, std::min(groups, bytes_of_half)), join(bytes_of_half, groups), words + j + i);
    }
  }
#endif
  for (; j < count; ++j) {
    words[j] = 0;
    for (int r = 0; r < rows; ++r) words[j] |= RowBits{(flags[r * stride + j] != 0) != kept} << r;
  }
}

template <class T>
void scale(const T* source, int count, T factor, T* target) {
  const Tag<T> d;
  const auto f = hn::Set(d, factor);
  int i = 0;
  for (; i + lanes_of<T> <= count; i += lanes_of<T>) hn::StoreU(hn::Mul(hn::LoadU(d, source + i), f), d, target + i);
  for (; i < count; ++i) target[i] = source[i] * factor;
}

template <class T>
T centred(const T* source, const T* centre, const T* factors, T factor, int count, T* target) {
  const Tag<T> d;
  const auto of_all = hn::Set(d, factor);
  constexpr int L = lanes_of<T>;
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int i = 0;
  const auto step = [&](Vec<T>& sum) {
    auto x = hn::Sub(hn::LoadU(d, source + i), hn::LoadU(d, centre + i));
    if (factors != nullptr) x = hn::Mul(x, hn::LoadU(d, factors + i));
    sum = hn::MulAdd(x, x, sum);
    hn::StoreU(hn::Mul(x, of_all), d, target + i);
    i += L;
  };
  while (i + 2 * L <= count) {
    step(even);
    step(odd);
  }
  if (i + L <= count) step(even);
  T rest = 0;
  for (; i < count; ++i) {
    T x = source[i] - centre[i];
    if (factors != nullptr) x *= factors[i];
    rest += x * x;
    target[i] = x * factor;
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd))) + rest;
}

template <class T>
T product(const T* a, const T* b, int count) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  Vec<T> sum[2] = {hn::Zero(d), hn::Zero(d)};
  int i = 0;
  for (; i + 2 * L <= count; i += 2 * L) {
    for (int v = 0; v < 2; ++v) sum[v] = hn::MulAdd(hn::LoadU(d, a + i + v * L), hn::LoadU(d, b + i + v * L), sum[v]);
  }
  T rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[0], sum[1]))) + rest;
}

template <class T>
void exponentials(const T* source, std::int64_t count, T factor, T* target) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const auto f = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + 4 * L <= count; i += 4 * L) {
    Vec<T> x[4];
    for (int v = 0; v < 4; ++v) x[v] = hn::Mul(hn::LoadU(d, source + i + v * L), f);
    exp2(d, x);
    for (int v = 0; v < 4; ++v) hn::StoreU(x[v], d, target + i + v * L);
  }
  for (; i < count; ++i) target[i] = hn::GetLane(exp2(d, hn::Set(d, source[i] * factor)));
}

template <class T>
T largest(const T* values, std::int64_t count) {
  return largest_magnitude(values, 0, 1, count);
}

// x * 0 is 0 for finite x and NaN for the others, and NaN survives a sum.
template <class T>
bool finite(const T* values, std::int64_t count) {
  const Tag<T> d;
  constexpr int L = lanes_of<T>;
  const auto zero = hn::Zero(d);
  Vec<T> sum[4] = {zero, zero, zero, zero};
  std::int64_t i = 0;
  for (; i + 4 * L <= count; i += 4 * L) {
    for (int v = 0; v < 4; ++v) sum[v] = hn::MulAdd(hn::LoadU(d, values + i + v * L), zero, sum[v]);
  }
  T rest = 0;
  for (; i < count; ++i) rest += values[i] * T(0);
  return hn::AllTrue(d, hn::Eq(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])), zero)) && rest == T(0);
}

template <class T>
constexpr RowKernels<T> row_table = {add_bias<T>, exclude<T>, survey<T>,       gather_signs<T>, gather_flags, scale<T>,
                                     centred<T>,  product<T>, exponentials<T>, largest<T>,      finite<T>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

template <>
const RowKernels<float>& row_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, row_table<float>);
}
template <>
const RowKernels<double>& row_kernels(Isa isa) {
  return QKV_PICK_FOR(isa, row_table<double>);
}

}  // namespace qkv::kernels
#endif
