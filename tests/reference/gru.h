// reference/gru.h: the gated recurrent unit as its formulas say, one sequence and one element after the other.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/tensor.h>

namespace qkv::reference {

struct GruSet {  // of one layer and direction; biases may be absent
  View W_ih, W_hh, b_ih, b_hh;
};

struct Gru {
  std::vector<GruSet> weights;
  bool both_directions = false;
  View h0 = {};       // [layers D, B, H]
  View lengths = {};  // [B], int64
};

template <class T>
struct GruStates {
  std::vector<T> all;   // [B, T, D H]
  std::vector<T> last;  // [layers D, B, H]
};

// x [B, T, I]. T = double is the reference, T = float the yardstick of its errors.
template <class T>
GruStates<T> gru(const View& x, const Gru& options);

struct GruGradients {
  std::vector<double> dx, dW_ih, dW_hh, db_ih, db_hh;
};

// Backward through time from the gradient by all states, for one layer and direction and sequences of one length.
GruGradients gru_gradients(const View& x, const GruSet& weights, const View& upstream);

}  // namespace qkv::reference
