// ops/packed_steps.cpp: sequences of different lengths, step by step and without gaps.
#include "ops/packed_steps.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/blocks.h"

namespace qkv {
namespace {

constexpr std::int64_t block = 1 << 15;  // elements of one task

std::int64_t steps_a_task(std::int64_t sequences, std::int64_t width) {
  return std::max<std::int64_t>(1, block / std::max<std::int64_t>(1, sequences * width));
}

template <class T>
void copy_line(const T* from, std::int64_t stride, std::int64_t count, T* to) {
  if (stride == 1) {
    std::copy_n(from, count, to);
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
  }
}

}  // namespace

PackedSteps::PackedSteps(const std::vector<std::int64_t>& lengths) : sequences_(lengths.size()) {
  std::iota(sequences_.begin(), sequences_.end(), 0);
  const auto length_of = [&](std::int64_t sequence) { return lengths[static_cast<std::size_t>(sequence)]; };
  std::stable_sort(sequences_.begin(), sequences_.end(),
                   [&](std::int64_t a, std::int64_t b) { return length_of(a) > length_of(b); });
  for (const std::int64_t sequence : sequences_) lengths_.push_back(length_of(sequence));
  const std::int64_t longest = lengths_.empty() ? 0 : lengths_.front();
  firsts_.push_back(0);
  std::int64_t going = sequences();
  for (std::int64_t step = 0; step < longest; ++step) {
    while (length(going - 1) <= step) --going;
    firsts_.push_back(firsts_.back() + going);
  }
}

Tensor PackedSteps::pack(const View& x) const {
  const std::int64_t width = x.extent(2);
  Tensor packed = Tensor::uninitialized(Shape{rows(), width}, x.dtype());
  const auto fill = [&]<class T>(T) {
    for_blocks(steps(), steps_a_task(sequences(), width), [&](std::int64_t first_step, std::int64_t some) {
      for (std::int64_t t = first_step; t < first_step + some; ++t) {
        T* to = packed.values<T>().data() + first(t) * width;
        for (std::int64_t place = 0; place < count(t); ++place, to += width) {
          const T* from = x.as<T>() + sequence(place) * x.stride(0) + t * x.stride(1);
          copy_line(from, x.stride(2), width, to);
        }
      }
    });
  };
  x.dtype() == Dtype::float64 ? fill(0.0) : fill(0.0f);
  return packed;
}

Tensor PackedSteps::unpack(const View& packed, std::int64_t T) const {
  const std::int64_t width = packed.extent(1);
  Tensor x(Shape{sequences(), T, width}, packed.dtype());
  const std::size_t bytes = static_cast<std::size_t>(width) * size_of(packed.dtype());
  if (bytes == 0) return x;
  const auto* from = static_cast<const char*>(packed.data());
  auto* to = static_cast<char*>(x.view().data());
  for_blocks(steps(), steps_a_task(sequences(), width), [&](std::int64_t first_step, std::int64_t some) {
    for (std::int64_t t = first_step; t < first_step + some; ++t) {
      for (std::int64_t place = 0; place < count(t); ++place) {
        std::memcpy(to + static_cast<std::size_t>(sequence(place) * T + t) * bytes,
                    from + static_cast<std::size_t>(first(t) + place) * bytes, bytes);
      }
    }
  });
  return x;
}

}  // namespace qkv
