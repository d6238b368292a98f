// attention/edit_derivatives.cpp: derivatives of softcap and of users' edits.
#include "attention/edit_derivatives.h"

#include <algorithm>
#include <cmath>

#include "attention/functors.h"

namespace qkv {

// d/ds c tanh(s / c) = 1 - t^2, d/dc = t - (s / c) (1 - t^2)
template <class T>
void EditDerivatives<T>::through_softcap(int p, T* changes, double* sum) {
  const int keys = loop_.sight_.part(p).keys, lanes = loop_.group_.panel(p).lanes;
  loop_.scores_ = unedited_;
  loop_.score(p, 0, keys, nullptr);
  const T inverse = T(1) / (static_cast<T>(problem_.softcap) * loop_.unit_);
  for (int i = 0; i < keys * lanes; ++i) {
    if (changes[i] == T(0)) continue;
    const T ratio = unedited_[i] * inverse, t = std::tanh(ratio), derivative = T(1) - t * t;
    if (sum != nullptr) *sum += static_cast<double>(changes[i] * (t - ratio * derivative));
    changes[i] *= derivative;
  }
}

template <class T>
void EditDerivatives<T>::through_your_edit(int p, std::size_t index, T* changes) {
  const int keys = loop_.sight_.part(p).keys, lanes = loop_.group_.panel(p).lanes, count = keys * lanes;
  loop_.scores_ = unedited_;
  loop_.score(p, 0, keys, nullptr);
  if (problem_.softcap != 0) {
    kernels::EditArgs<T> cap{unedited_, lanes, 0, keys, nullptr};
    cap.cap = static_cast<T>(problem_.softcap) * loop_.unit_;
    s_.edits->softcap(cap);
  }
  for (int i = 0; i < count; ++i) unedited_[i] /= loop_.unit_;
  const auto& edits = problem_.mask.edit_by();
  ScoreBlock<T> block = loop_.block_of_head(p, 0, 0, keys);
  for (std::size_t i = 0; i < index; ++i) call(edits[i], block);
  std::copy_n(changes, count, w_.scores);
  block.scores = changes;
  derive(edits[index], SlopeBlock<T>{block, unedited_});
  for (int i = 0; i < count; ++i) {
    if (w_.scores[i] == T(0)) changes[i] = 0;
  }
}

template class EditDerivatives<float>;
template class EditDerivatives<double>;

}  // namespace qkv
