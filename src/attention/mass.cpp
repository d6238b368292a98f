// attention/mass.cpp: keeps weights until they can be added up by key.
#include "attention/mass.h"
#include "base/numbers.h"

#include <algorithm>
#include <cmath>

namespace qkv {

template <class T>
void Mass<T>::begin_run() {
  everywhere_ = 0;
  std::fill_n(w_.mass, problem_.Tk * strategy_.vector, T(0));
}

template <class T>
void Mass<T>::begin_group(int panels) {
  std::fill_n(w_.mass_spans, panels * w_.mass_blocks, KeyRange{0, 0});
}

template <class T>
T* Mass<T>::block(int p, std::int64_t block) const {
  return w_.mass_weights + at(p, block) * w_.block * strategy_.max_lanes;
}

template <class T>
void Mass<T>::keep(int p, std::int64_t block, std::int64_t first, int keys, int lanes, const T* max) {
  w_.mass_spans[at(p, block)] = {first, first + keys};
  std::copy_n(max, lanes, w_.mass_references + at(p, block) * strategy_.max_lanes);
}

template <class T>
void Mass<T>::add_panel(int p, int lanes, const T* max, const T* factors) {
  const bool exponential = problem_.weighing.family == Family::exponential;
  for (std::int64_t i = 0; i < w_.mass_blocks; ++i) {
    const std::int64_t place = p * w_.mass_blocks + i;
    const KeyRange span = w_.mass_spans[place];
    if (span.first == span.last) continue;
    const T* references = w_.mass_references + place * strategy_.max_lanes;
    for (int r = 0; r < lanes; ++r) {
      // A row that had seen nothing yet has weights of 0 here.
      const bool none = factors[r] == T(0) || (exponential && std::isinf(references[r]));
      w_.factors[r] = none ? T(0) : exponential ? std::exp2(references[r] - max[r]) * factors[r] : factors[r];
    }
    strategy_.weighs->mass({w_.mass_weights + place * w_.block * strategy_.max_lanes, lanes,
                            static_cast<int>(span.last - span.first), w_.factors,
                            w_.mass + span.first * strategy_.vector});
  }
}

template <class T>
void Mass<T>::add_nan_row(int p, int lanes, int r) {
  for (std::int64_t i = 0; i < w_.mass_blocks; ++i) {
    const std::int64_t place = p * w_.mass_blocks + i;
    const T* weights = w_.mass_weights + place * w_.block * strategy_.max_lanes;
    for (std::int64_t j = w_.mass_spans[place].first; j < w_.mass_spans[place].last; ++j) {
      const T weight = weights[(j - w_.mass_spans[place].first) * lanes + r];
      if (weight != T(0)) add(j, quiet_nan<T>);
    }
  }
}

template <class T>
void Mass<T>::end_run(T* masses) const {
  const std::int64_t lanes = strategy_.vector;
  for (std::int64_t j = 0; j < problem_.Tk; ++j) {
    T sum = everywhere_;
    for (std::int64_t i = 0; i < lanes; ++i) sum += w_.mass[j * lanes + i];
    masses[j] = sum;
  }
}

template class Mass<float>;
template class Mass<double>;

}  // namespace qkv
