// attention/centre.cpp: centres that are keys.
#include "attention/centre.h"

#include <algorithm>

#include "attention/load.h"
#include "kernels/rows.h"

namespace qkv {

template <class T>
Tensor about_centre(const View& x, const View& centres, std::int64_t group, const VisibleRuns* runs) {
  const std::int64_t B = x.extent(0), heads = x.extent(1), count = x.extent(2), D = x.extent(3);
  Tensor result(Shape{B, heads, count, D + 1}, dtype_of<T>);
  RowReader<T> rows(x);
  for_each_row(B * heads, count, runs, [&](std::int64_t i, std::int64_t j) {
    const std::int64_t b = i / heads, h = i % heads;
    const T* centre = centres.as<T>() + (b * centres.extent(1) + h / group) * D;
    T* to = result.view().as<T>() + (i * count + j) * (D + 1);
    kernels::row_kernels<T>().centred(rows.row(place(x, {b, h, j})), centre, nullptr, T(1), static_cast<int>(D), to);
    to[D] = 1;
  });
  return result;
}

template <class T>
Tensor some_keys(const Problem& p, const VisibleRuns& runs) {
  Tensor centres(Shape{p.B, p.Hk, p.D}, dtype_of<T>);
  for (std::int64_t i = 0; i < p.B * p.Hk; ++i) {
    T* to = centres.view().as<T>() + i * p.D;
    bool found = false;
    for (const KeyRange& run : runs[static_cast<std::size_t>(i)]) {
      for (std::int64_t j = run.first; j < run.last && !found; ++j) {
        load_row(p.k, place(p.k, {i / p.Hk, i % p.Hk, j}), p.k.stride(3), p.D, to);
        found = kernels::row_kernels<T>().finite(to, p.D);
      }
    }
    if (!found) std::fill_n(to, p.D, T(0));
  }
  return centres;
}

template Tensor some_keys<float>(const Problem&, const VisibleRuns&);
template Tensor some_keys<double>(const Problem&, const VisibleRuns&);
template Tensor about_centre<float>(const View&, const View&, std::int64_t, const VisibleRuns*);
template Tensor about_centre<double>(const View&, const View&, std::int64_t, const VisibleRuns*);

}  // namespace qkv
