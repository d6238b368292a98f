// reference/masked_softmax.cpp: softmax over the first valid entries of each row, as its formula says.
#include "reference/masked_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/elements.h"

namespace qkv::reference {

template <class T>
std::vector<T> masked_softmax(const View& scores, const View& valid_lens, OnEmpty on_empty) {
  const std::int64_t Tk = scores.shape().back(), Tq = scores.extent(scores.rank() - 2);
  const std::int64_t B = scores.rank() == 3 ? scores.extent(0) : 1;
  const std::vector<T> all = elements<T>(scores);
  std::vector<T> weights(all.size(), 0);
  for (std::int64_t row = 0; row < B * Tq; ++row) {
    const std::int64_t b = row / Tq, i = row % Tq;
    std::int64_t length = Tk;
    if (valid_lens) {
      const std::int64_t per_row = valid_lens.rank() == 2 ? i * valid_lens.stride(1) : 0;
      length = static_cast<std::int64_t>(element(valid_lens, b * valid_lens.stride(0) + per_row));
    }
    const T* s = all.data() + row * Tk;
    T* w = weights.data() + row * Tk;
    if (length == 0) {
      if (on_empty == OnEmpty::uniform) std::fill(w, w + Tk, static_cast<T>(1) / static_cast<T>(Tk));
      if (on_empty == OnEmpty::nan) std::fill(w, w + Tk, std::numeric_limits<T>::quiet_NaN());
      continue;
    }
    T largest = -std::numeric_limits<T>::infinity(), sum = 0;
    for (std::int64_t j = 0; j < length; ++j) largest = std::max(largest, s[j]);
    for (std::int64_t j = 0; j < length; ++j) sum += w[j] = std::exp(s[j] - largest);
    for (std::int64_t j = 0; j < length; ++j) w[j] /= sum;
  }
  return weights;
}
template std::vector<double> masked_softmax<double>(const View&, const View&, OnEmpty);
template std::vector<float> masked_softmax<float>(const View&, const View&, OnEmpty);

}  // namespace qkv::reference
