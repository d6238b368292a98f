// kernels/functions.cpp: functions of one number, element by element, and their derivatives.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/functions.cpp"
#include "kernels/targets.h"

#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/random.h"
#include "kernels/functions.h"
#include "kernels/isa.h"
#include "kernels/random-inl.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {
namespace {

using D = Tag<float>;
using V = Vec<float>;
inline constexpr D d;
inline constexpr int at_once = 4;  // vectors; see exp2
inline constexpr float log2e = std::numbers::log2e_v<float>;

HWY_INLINE V number(float x) { return hn::Set(d, x); }

// min(x, bound), and NaN where x is NaN.
HWY_INLINE V at_most(V x, V bound) { return hn::IfThenElse(hn::Gt(x, bound), bound, x); }

// e^x, of which the product x log2(e) is taken in two parts: rounded, it would cost x units in the last place.
HWY_INLINE void exponential(V (&x)[at_once]) {
  constexpr float low = 1.9259630e-8f;  // log2(e) less its float
  V rest[at_once], power[at_once];
  for (int i = 0; i < at_once; ++i) {
    // Beyond, e^x is not finite; at the bound, 2^128 overflows as it should.
    const V bounded = at_least(d, at_most(x[i], number(89)), number(-104));
    power[i] = hn::Mul(bounded, number(log2e));
    rest[i] = hn::MulAdd(bounded, number(low), hn::MulSub(bounded, number(log2e), power[i]));
    power[i] = hn::Mul(power[i], number(0.5f));  // so that 2^x is far from its limits, and its square is not
  }
  for (int i = 0; i < at_once; ++i) x[i] = power[i];
  exp2(d, x);
  for (int i = 0; i < at_once; ++i) {
    const V root = x[i];
    x[i] = hn::Mul(hn::Mul(root, root), hn::MulAdd(rest[i], number(std::numbers::ln2_v<float>), number(1)));
  }
}

// 1 / (1 + e^-x) and, with all its digits, 1 less that.
HWY_INLINE void logistic(V (&x)[at_once], V (&less)[at_once]) {
  for (int i = 0; i < at_once; ++i) less[i] = at_most(hn::Mul(x[i], number(-log2e)), number(126));
  exp2(d, less);
  for (int i = 0; i < at_once; ++i) {
    x[i] = hn::Div(number(1), hn::Add(number(1), less[i]));
    less[i] = hn::Mul(less[i], x[i]);
  }
}

// The normal distribution: `below` is the probability below x, `density` its derivative e^(-x^2/2) / sqrt(2 pi).
//
// The probability of the smaller side is e^(-x^2/2) t Q(t), t = 1 / (1 + 0.35 |x|), Q a polynomial fitted for the least
// relative error (3e-8); so it keeps its digits far out, where 1 + erf would lose them all.
HWY_INLINE void normal(const V (&x)[at_once], V (&below)[at_once], V (&density)[at_once]) {
  constexpr float Q[] = {-2.9158030e-2f, 1.4403161e-1f, -2.5584039e-1f, 1.5932125e-1f, -2.3213394e-2f,
                         1.0555293e-1f,  1.1982118e-1f, 1.3986354e-1f,  1.3962130e-1f};
  for (int i = 0; i < at_once; ++i) density[i] = hn::Mul(hn::Mul(x[i], x[i]), number(-0.5f * log2e));
  exp2(d, density);
  for (int i = 0; i < at_once; ++i) {
    const V t = hn::Div(number(1), hn::MulAdd(hn::Abs(x[i]), number(0.35f), number(1)));
    V q = number(Q[0]);
    for (std::size_t term = 1; term < std::size(Q); ++term) q = hn::MulAdd(q, t, number(Q[term]));
    const V tail = hn::Mul(hn::Mul(density[i], t), q);
    below[i] = hn::IfThenElse(hn::Lt(x[i], hn::Zero(d)), tail, hn::Sub(number(1), tail));
    density[i] = hn::Mul(density[i], number(0.39894228f));
  }
}

// gelu's approximation is x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
inline constexpr float twice_root = 1.5957691f, cube = 0.044715f;
HWY_INLINE void gelu_gate(const V (&x)[at_once], V (&gate)[at_once], V (&less)[at_once]) {
  for (int i = 0; i < at_once; ++i) {
    const V square = hn::Mul(x[i], x[i]);
    gate[i] = hn::Mul(hn::Mul(x[i], number(twice_root)), hn::MulAdd(square, number(cube), number(1)));
  }
  logistic(gate, less);
}

// Each has y = f(x) in place, and dy times the derivative, from what is kept.
struct Tanh {
  static HWY_INLINE void forward(V (&x)[at_once]) { tanh(d, x); }
  static HWY_INLINE void backward(const V (&y)[at_once], V (&dy)[at_once]) {
    for (int i = 0; i < at_once; ++i) dy[i] = hn::Mul(dy[i], hn::NegMulAdd(y[i], y[i], number(1)));
  }
};
struct Sigmoid {
  static HWY_INLINE void forward(V (&x)[at_once]) {
    V less[at_once];
    logistic(x, less);
  }
  static HWY_INLINE void backward(const V (&y)[at_once], V (&dy)[at_once]) {
    for (int i = 0; i < at_once; ++i) dy[i] = hn::Mul(dy[i], hn::NegMulAdd(y[i], y[i], y[i]));
  }
};
struct Relu {
  static HWY_INLINE void forward(V (&x)[at_once]) {
    for (int i = 0; i < at_once; ++i) x[i] = at_least(d, x[i], hn::Zero(d));
  }
  static HWY_INLINE void backward(const V (&y)[at_once], V (&dy)[at_once]) {
    for (int i = 0; i < at_once; ++i) dy[i] = hn::IfThenElseZero(hn::Gt(y[i], hn::Zero(d)), dy[i]);
  }
};
struct Gelu {
  static HWY_INLINE void forward(V (&x)[at_once]) {
    V below[at_once], density[at_once];
    normal(x, below, density);
    for (int i = 0; i < at_once; ++i) x[i] = hn::Mul(x[i], below[i]);
  }
  static HWY_INLINE void backward(const V (&x)[at_once], V (&dy)[at_once]) {
    V below[at_once], density[at_once];
    normal(x, below, density);
    for (int i = 0; i < at_once; ++i) dy[i] = hn::Mul(dy[i], hn::MulAdd(x[i], density[i], below[i]));
  }
};
struct GeluTanh {
  static HWY_INLINE void forward(V (&x)[at_once]) {
    V gate[at_once], less[at_once];
    gelu_gate(x, gate, less);
    for (int i = 0; i < at_once; ++i) x[i] = hn::Mul(x[i], gate[i]);
  }
  // gate + x gate (1 - gate) 2 u'
  static HWY_INLINE void backward(const V (&x)[at_once], V (&dy)[at_once]) {
    V gate[at_once], less[at_once];
    gelu_gate(x, gate, less);
    for (int i = 0; i < at_once; ++i) {
      const V square = hn::Mul(x[i], x[i]);
      const V slope = hn::Mul(number(twice_root), hn::MulAdd(square, number(3 * cube), number(1)));
      const V change = hn::Mul(hn::Mul(x[i], slope), hn::Mul(gate[i], less[i]));
      dy[i] = hn::Mul(dy[i], hn::Add(gate[i], change));
    }
  }
};
struct Exp {
  static HWY_INLINE void forward(V (&x)[at_once]) { exponential(x); }
  static HWY_INLINE void backward(const V (&y)[at_once], V (&dy)[at_once]) {
    for (int i = 0; i < at_once; ++i) dy[i] = hn::Mul(dy[i], y[i]);
  }
};
struct Log {
  static HWY_INLINE void forward(V (&x)[at_once]) {
    log2(d, x);
    for (int i = 0; i < at_once; ++i) x[i] = hn::Mul(x[i], number(std::numbers::ln2_v<float>));
  }
  static HWY_INLINE void backward(const V (&x)[at_once], V (&dy)[at_once]) {
    for (int i = 0; i < at_once; ++i) dy[i] = hn::Div(dy[i], x[i]);
  }
};

inline constexpr std::int64_t step = at_once * lanes_of<float>;

HWY_INLINE void load(const float* from, V (&x)[at_once]) {
  for (int i = 0; i < at_once; ++i) x[i] = hn::LoadU(d, from + i * lanes_of<float>);
}
HWY_INLINE void store(const V (&x)[at_once], float* to) {
  for (int i = 0; i < at_once; ++i) hn::StoreU(x[i], d, to + i * lanes_of<float>);
}

// The last few elements go through memory beside, so that there is one way to compute them all.
template <class F>
void forward(const float* x, std::int64_t count, float* y) {
  HWY_ALIGN float beside[step] = {};
  for (std::int64_t i = 0; i < count; i += step) {
    const std::int64_t left = count - i;
    if (left < step) std::copy_n(x + i, left, beside);
    V v[at_once];
    load(left < step ? beside : x + i, v);
    F::forward(v);
    store(v, left < step ? beside : y + i);
    if (left < step) std::copy_n(beside, left, y + i);
  }
}
template <class F>
void backward(const float* kept, std::int64_t count, float* dy) {
  HWY_ALIGN float kept_beside[step] = {}, beside[step] = {};
  for (std::int64_t i = 0; i < count; i += step) {
    const std::int64_t left = count - i;
    if (left < step) {
      std::copy_n(kept + i, left, kept_beside);
      std::copy_n(dy + i, left, beside);
    }
    V k[at_once], v[at_once];
    load(left < step ? kept_beside : kept + i, k);
    load(left < step ? beside : dy + i, v);
    F::backward(k, v);
    store(v, left < step ? beside : dy + i);
    if (left < step) std::copy_n(beside, left, dy + i);
  }
}

void dropout(const DropoutArgs<float>& args) {
  const hn::RebindToUnsigned<D> bits;
  constexpr int L = lanes_of<float>;
  const auto upper = hn::Set(bits, static_cast<std::uint32_t>(args.key >> 32));
  const auto threshold = hn::Set(bits, args.threshold), next = hn::Set(bits, random_step * L);
  const auto start = static_cast<std::uint32_t>(args.counter) * random_step + static_cast<std::uint32_t>(args.key);
  auto x = hn::Add(hn::Mul(hn::Iota(bits, 0), hn::Set(bits, random_step)), hn::Set(bits, start));
  HWY_ALIGN float beside[L];
  for (std::int64_t i = 0; i < args.count; i += L, x = hn::Add(x, next)) {
    const std::int64_t left = args.count - i;
    if (left < L) std::copy_n(args.source + i, left, beside);
    const auto random = random_bits(bits, x, upper);
    const auto is_kept = hn::RebindMask(d, hn::Eq(hn::Max(random, threshold), random));
    const V kept = hn::Mul(hn::LoadU(d, left < L ? beside : args.source + i), number(args.factor));
    hn::StoreU(hn::IfThenElseZero(is_kept, kept), d, left < L ? beside : args.target + i);
    if (left < L) std::copy_n(beside, left, args.target + i);
  }
}
constexpr DropoutKernel<float> dropout_table = dropout;

template <class F>
constexpr FunctionKernels<float> of = {forward<F>, backward<F>};

// In the order of Function.
constexpr FunctionKernels<float> function_table[] = {of<Tanh>,     of<Sigmoid>, of<Relu>, of<Gelu>,
                                                     of<GeluTanh>, of<Exp>,     of<Log>};

}  // namespace
}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {
namespace {

// The same in double precision, as the formulas say.
struct Slow {
  template <double (*f)(double)>
  static void forward(const double* x, std::int64_t count, double* y) {
    for (std::int64_t i = 0; i < count; ++i) y[i] = f(x[i]);
  }
  template <double (*derivative)(double)>
  static void backward(const double* kept, std::int64_t count, double* dy) {
    for (std::int64_t i = 0; i < count; ++i) dy[i] *= derivative(kept[i]);
  }

  static double tanh(double x) { return std::tanh(x); }
  static double of_tanh(double y) { return 1 - y * y; }
  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
  static double of_sigmoid(double y) { return y * (1 - y); }
  static double relu(double x) { return x < 0 ? 0 : x; }
  static double of_relu(double y) { return y > 0 ? 1 : 0; }
  static double below(double x) { return 0.5 * std::erfc(-x * std::numbers::sqrt2 / 2); }
  static double gelu(double x) { return x * below(x); }
  static double of_gelu(double x) {
    constexpr double density_at_0 = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    return below(x) + x * density_at_0 * std::exp(-x * x / 2);
  }
  static constexpr double twice_root = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi, cube = 0.044715;
  static double gate(double x) { return sigmoid(twice_root * x * (1 + cube * x * x)); }
  static double gelu_tanh(double x) { return x * gate(x); }
  static double of_gelu_tanh(double x) {
    return gate(x) + x * of_sigmoid(gate(x)) * twice_root * (1 + 3 * cube * x * x);
  }
  static double exp(double x) { return std::exp(x); }
  static double of_exp(double y) { return y; }
  static double log(double x) { return std::log(x); }
  static double of_log(double x) { return 1 / x; }
};

template <double (*f)(double), double (*derivative)(double)>
constexpr FunctionKernels<double> slow = {Slow::forward<f>, Slow::backward<derivative>};

constexpr FunctionKernels<double> slow_table[] = {
    slow<Slow::tanh, Slow::of_tanh>, slow<Slow::sigmoid, Slow::of_sigmoid>,     slow<Slow::relu, Slow::of_relu>,
    slow<Slow::gelu, Slow::of_gelu>, slow<Slow::gelu_tanh, Slow::of_gelu_tanh>, slow<Slow::exp, Slow::of_exp>,
    slow<Slow::log, Slow::of_log>};

}  // namespace

template <>
const FunctionKernels<float>& function_kernels(Function function, Isa isa) {
  return QKV_PICK_FOR(isa, function_table)[static_cast<int>(function)];
}
template <>
const FunctionKernels<double>& function_kernels(Function function, Isa /*isa*/) {
  return slow_table[static_cast<int>(function)];
}

template <>
DropoutKernel<float> dropout_kernel(Isa isa) {
  return QKV_PICK_FOR(isa, dropout_table);
}
template <>
DropoutKernel<double> dropout_kernel(Isa /*isa*/) {
  return [](const DropoutArgs<double>& args) {
    for (std::int64_t i = 0; i < args.count; ++i) {
      const bool is_kept = random_bits(args.key, args.counter + i) >= args.threshold;
      args.target[i] = is_kept ? args.source[i] * args.factor : 0;
    }
  };
}

}  // namespace qkv::kernels
#endif
