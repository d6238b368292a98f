// reference/elements.cpp: the numbers of a view of any dtype and any strides.
#include "reference/elements.h"

#include <array>
#include <stdexcept>

namespace qkv::reference {

double element(const View& view, std::int64_t distance) {
  switch (view.dtype()) {
    case Dtype::float32:
      return static_cast<double>(view.as<float>()[distance]);
    case Dtype::float64:
      return view.as<double>()[distance];
    case Dtype::float16:
      return static_cast<double>(static_cast<float>(view.as<Float16>()[distance]));
    case Dtype::bfloat16:
      return static_cast<double>(static_cast<float>(view.as<BFloat16>()[distance]));
    case Dtype::boolean:
      return view.as<bool>()[distance] ? 1 : 0;
    case Dtype::int32:
      return view.as<std::int32_t>()[distance];
    case Dtype::int64:
      return static_cast<double>(view.as<std::int64_t>()[distance]);
  }
  throw std::logic_error("reference: a dtype that does not exist");
}

double broadcast_element(const View& view, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::array<std::int64_t, 4> index = {b, h, i, j};
  std::int64_t distance = 0;
  for (int axis = 0; axis < view.rank(); ++axis) {
    const auto place = static_cast<std::size_t>(4 - view.rank() + axis);
    if (view.extent(axis) != 1) distance += index[place] * view.stride(axis);
  }
  return element(view, distance);
}

View as_rank_4(const View& x) {
  if (x.rank() == 4) return x;
  if (x.rank() == 3) {
    return View(x.data(), x.dtype(), {x.extent(0), 1, x.extent(1), x.extent(2)},
                {x.stride(0), 0, x.stride(1), x.stride(2)});
  }
  return View(x.data(), x.dtype(), {1, 1, x.extent(0), x.extent(1)}, {0, 0, x.stride(0), x.stride(1)});
}

namespace {

template <class T>
void append(const View& view, int axis, std::int64_t distance, std::vector<T>& to) {
  if (axis == view.rank()) {
    to.push_back(static_cast<T>(element(view, distance)));
    return;
  }
  for (std::int64_t i = 0; i < view.extent(axis); ++i) append(view, axis + 1, distance + i * view.stride(axis), to);
}

}  // namespace

template <class T>
std::vector<T> elements(const View& view) {
  std::vector<T> all;
  all.reserve(static_cast<std::size_t>(view.elements()));
  append(view, 0, 0, all);
  return all;
}
template std::vector<float> elements<float>(const View&);
template std::vector<double> elements<double>(const View&);
template std::vector<std::int64_t> elements<std::int64_t>(const View&);

}  // namespace qkv::reference
