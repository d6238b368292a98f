// reference/mask.h: which keys a query may see, what is added to its scores, and your edits of them.
#pragma once

#include <cstdint>
#include <vector>

#include <qkv/mask.h>

namespace qkv::reference {

struct Extents {
  std::int64_t B, H, Hk, Tq, Tk, D, Dv;
};

// A mask as its parts say, row by row. T is the type of the scores.
template <class T>
class Sight {
 public:
  Sight(const Mask& mask, const Extents& extents);

  std::vector<bool> seen(std::int64_t b, std::int64_t h, std::int64_t i) const;   // [Tk]
  T added(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;  // by biases and ALiBi
  void edit(std::vector<T>& scores, std::int64_t b, std::int64_t h, std::int64_t i) const;

 private:
  long double position(std::int64_t b, std::int64_t i) const;

  Mask mask_;
  Extents extents_;
  std::vector<long double> offsets_;  // [B]: query i stands at key i + offset; holds every sum of two int64
};
extern template class Sight<double>;
extern template class Sight<float>;

}  // namespace qkv::reference
