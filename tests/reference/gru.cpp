// reference/gru.cpp: the gated recurrent unit as its formulas say.
#include "reference/gru.h"

#include <cmath>

#include "reference/elements.h"

namespace qkv::reference {
namespace {

// One layer and direction, and its states.
template <class T>
class Unit {
 public:
  Unit(const GruSet& set, std::int64_t inputs)
      : inputs_(static_cast<std::size_t>(inputs)),
        width_(static_cast<std::size_t>(set.W_hh.extent(1))),
        W_ih_(elements<T>(set.W_ih)),
        W_hh_(elements<T>(set.W_hh)),
        b_ih_(set.b_ih ? elements<T>(set.b_ih) : std::vector<T>(3 * width_, 0)),
        b_hh_(set.b_hh ? elements<T>(set.b_hh) : std::vector<T>(3 * width_, 0)) {}

  struct Step {
    std::vector<T> before, r, z, n, hidden, after;
  };

  Step step(const T* x, const std::vector<T>& h) const {
    Step s{h, {}, {}, {}, {}, {}};
    for (std::size_t j = 0; j < width_; ++j) {
      const auto sigmoid = [](T v) { return 1 / (1 + std::exp(-v)); };
      const T r = sigmoid(input_part(x, j) + state_part(h, j));
      const T z = sigmoid(input_part(x, width_ + j) + state_part(h, width_ + j));
      const T hidden = state_part(h, 2 * width_ + j);
      const T n = std::tanh(input_part(x, 2 * width_ + j) + r * hidden);
      s.r.push_back(r);
      s.z.push_back(z);
      s.n.push_back(n);
      s.hidden.push_back(hidden);
      s.after.push_back((1 - z) * n + z * h[j]);
    }
    return s;
  }

  std::size_t inputs() const { return inputs_; }
  std::size_t width() const { return width_; }
  T W_ih(std::size_t row, std::size_t column) const { return W_ih_[row * inputs_ + column]; }
  T W_hh(std::size_t row, std::size_t column) const { return W_hh_[row * width_ + column]; }

 private:
  T input_part(const T* x, std::size_t row) const {
    T sum = b_ih_[row];
    for (std::size_t i = 0; i < inputs_; ++i) sum += W_ih(row, i) * x[i];
    return sum;
  }
  T state_part(const std::vector<T>& h, std::size_t row) const {
    T sum = b_hh_[row];
    for (std::size_t i = 0; i < width_; ++i) sum += W_hh(row, i) * h[i];
    return sum;
  }

  std::size_t inputs_, width_;
  std::vector<T> W_ih_, W_hh_, b_ih_, b_hh_;
};

}  // namespace

template <class T>
GruStates<T> gru(const View& x, const Gru& options) {
  const std::int64_t D = options.both_directions ? 2 : 1, H = options.weights[0].W_hh.extent(1);
  const std::int64_t B = x.extent(0), steps = x.extent(1),
                     layers = static_cast<std::int64_t>(options.weights.size()) / D;
  const auto at = [](std::int64_t index) { return static_cast<std::size_t>(index); };
  const std::vector<T> h0 = options.h0 ? elements<T>(options.h0) : std::vector<T>(at(layers * D * B * H), 0);
  GruStates<T> states{{}, h0};
  std::vector<T> input = elements<T>(x);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    std::vector<T> output(at(B * steps * D * H), 0);
    for (std::int64_t d = 0; d < D; ++d) {
      const Unit<T> unit(options.weights[at(layer * D + d)], layer == 0 ? x.extent(2) : D * H);
      for (std::int64_t b = 0; b < B; ++b) {
        const std::int64_t length =
            options.lengths ? options.lengths.as<std::int64_t>()[b * options.lengths.stride(0)] : steps;
        T* last = states.last.data() + ((layer * D + d) * B + b) * H;
        std::vector<T> h(last, last + H);
        for (std::int64_t s = 0; s < length; ++s) {
          const std::int64_t t = d == 0 ? s : length - 1 - s;
          h = unit.step(input.data() + at(b * steps + t) * unit.inputs(), h).after;
          std::copy(h.begin(), h.end(), output.begin() + ((b * steps + t) * D + d) * H);
        }
        std::copy(h.begin(), h.end(), last);
      }
    }
    input = output;
  }
  states.all = input;
  return states;
}
template GruStates<double> gru<double>(const View&, const Gru&);
template GruStates<float> gru<float>(const View&, const Gru&);

GruGradients gru_gradients(const View& x, const GruSet& weights, const View& upstream) {
  const auto B = static_cast<std::size_t>(x.extent(0)), steps = static_cast<std::size_t>(x.extent(1));
  const Unit<double> unit(weights, x.extent(2));
  const std::size_t I = unit.inputs(), H = unit.width();
  const std::vector<double> input = elements<double>(x), dall = elements<double>(upstream);
  GruGradients g{std::vector<double>(B * steps * I), std::vector<double>(3 * H * I), std::vector<double>(3 * H * H),
                 std::vector<double>(3 * H), std::vector<double>(3 * H)};
  for (std::size_t b = 0; b < B; ++b) {
    std::vector<Unit<double>::Step> forward;
    std::vector<double> h(H, 0), dh(H, 0);
    for (std::size_t t = 0; t < steps; ++t) {
      forward.push_back(unit.step(input.data() + (b * steps + t) * I, h));
      h = forward.back().after;
    }
    for (std::size_t t = steps; t-- > 0;) {
      const auto& s = forward[t];
      const double* xt = input.data() + (b * steps + t) * I;
      std::vector<double> di(3 * H), ds(3 * H), dbefore(H);
      for (std::size_t j = 0; j < H; ++j) {
        const double dafter = dh[j] + dall[(b * steps + t) * H + j];
        dbefore[j] = dafter * s.z[j];
        const double dn = dafter * (1 - s.z[j]) * (1 - s.n[j] * s.n[j]);
        di[j] = ds[j] = dn * s.hidden[j] * s.r[j] * (1 - s.r[j]);
        di[H + j] = ds[H + j] = dafter * (s.before[j] - s.n[j]) * s.z[j] * (1 - s.z[j]);
        di[2 * H + j] = dn;
        ds[2 * H + j] = dn * s.r[j];
      }
      for (std::size_t row = 0; row < 3 * H; ++row) {
        g.db_ih[row] += di[row];
        g.db_hh[row] += ds[row];
        for (std::size_t i = 0; i < I; ++i) {
          g.dW_ih[row * I + i] += di[row] * xt[i];
          g.dx[(b * steps + t) * I + i] += di[row] * unit.W_ih(row, i);
        }
        for (std::size_t i = 0; i < H; ++i) {
          g.dW_hh[row * H + i] += ds[row] * s.before[i];
          dbefore[i] += ds[row] * unit.W_hh(row, i);
        }
      }
      dh = dbefore;
    }
  }
  return g;
}

}  // namespace qkv::reference
