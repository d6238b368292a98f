// ops/dropout.cpp: elements that become 0 by chance, in training.
#include <qkv/ops.h>

#include <cmath>

#include <qkv/error.h>

#include "base/blocks.h"
#include "base/message.h"
#include "base/random.h"
#include "kernels/functions.h"
#include "ops/check.h"

namespace qkv {
namespace {

// Element i goes where number i of the stream is below the threshold. Counters are 32 bits, so that every 2^32 elements
// have a stream of their own.
struct Chance {
  std::uint64_t seed;
  double probability;

  template <class T>
  void drop(const T* x, std::int64_t count, T* y) const {
    constexpr std::int64_t block = 1 << 13, stream = std::int64_t{1} << 32;
    const std::uint32_t threshold = drop_threshold(probability);
    const auto kernel = kernels::dropout_kernel<T>(current_isa());
    for_blocks(count, block, [&](std::int64_t first, std::int64_t length) {
      kernel({x + first, length, random_key(seed, first / stream), first % stream, threshold,
              static_cast<T>(1 / (1 - probability)), y + first});
    });
  }
};

// y = x m / (1 - p), m 0 or 1 by the seed.
Tensor dropped(const Chance& chance, const View& x) {
  Tensor y = Tensor::uninitialized(x.shape(), x.dtype());
  if (x.dtype() == Dtype::float64) {
    chance.drop(x.as<double>(), x.elements(), y.values<double>().data());
  } else {
    chance.drop(x.as<float>(), x.elements(), y.values<float>().data());
  }
  return y;
}

}  // namespace

Variable dropout(const Variable& x, const DropoutOptions& options) {
  common_dtype("dropout", {&x});
  if (!(options.probability >= 0 && options.probability < 1)) {
    throw OptionError(message("dropout: the probability must be at least 0 and below 1, and is ", options.probability));
  }
  if (!options.training || options.probability == 0) return x;
  if (!options.seed) throw OptionError("dropout: in training there must be a seed");
  const Chance chance{*options.seed, options.probability};
  // Backward: the same elements of dy go. Keeps the seed alone.
  return record("dropout", Variable(dropped(chance, dense(x).value())), {x},
                [chance](Backward& back) { back.add(0, dropped(chance, back.upstream())); });
}

}  // namespace qkv
