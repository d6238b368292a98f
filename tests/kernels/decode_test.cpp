// kernels/decode_test.cpp: few rows, many keys: products and weighted sums, in every order in which keys may be read.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/base.h>

#include "base/half.h"
#include "kernels/block_data.h"
#include "kernels/score_block.h"

namespace qkv::test {
namespace {

using kernels::Reading;

// As one stream and as four, with hints and without.
constexpr Reading readings[] = {{1, 0},
                                {1, 5},
                                {kernels::decode_keys / kernels::decode_streams, 0},
                                {kernels::decode_keys / kernels::decode_streams, 4}};
constexpr int widths[] = {0, 1, 3, 4, 8, 15, 16, 17, 32, 33, 40, 64, 65, 100, 128, 130};
// On both sides of four keys, of a stream of 128, of the last stream's first key and of a block.
constexpr int counts[] = {0, 1, 2, 3, 4, 5, 7, 127, 128, 129, 383, 384, 385, 511, 512};

// What keys and values are stored as, and what is computed in.
template <class C, class S>
struct Stored {
  using Computed = C;
  using Storage = S;
};
template <class Types>
class Decode : public testing::Test {};
using AllTypes = testing::Types<Stored<float, float>, Stored<float, hwy::float16_t>, Stored<float, hwy::bfloat16_t>,
                                Stored<double, double>>;
TYPED_TEST_SUITE(Decode, AllTypes);

template <class S>
S stored(double number) {
  S result{};
  if constexpr (std::is_same_v<S, hwy::float16_t>) {
    result.bits = float16_of_float(static_cast<float>(number));
  } else if constexpr (std::is_same_v<S, hwy::bfloat16_t>) {
    result.bits = bfloat16_of_float(static_cast<float>(number));
  } else {
    result = static_cast<S>(number);
  }
  return result;
}
template <class S>
double number_of(S element) {
  if constexpr (std::is_same_v<S, hwy::float16_t>) return static_cast<double>(float_of_float16(element.bits));
  if constexpr (std::is_same_v<S, hwy::bfloat16_t>) return static_cast<double>(float_of_bfloat16(element.bits));
  if constexpr (std::is_floating_point_v<S>) return static_cast<double>(element);
}
// The place of a storage type in the kernels' tables.
template <class S>
constexpr int place_of = std::is_same_v<S, hwy::float16_t>    ? 1
                         : std::is_same_v<S, hwy::bfloat16_t> ? 2
                                                              : 0;

// Rows of random numbers with NaN between them, and memory that must not be touched behind the last one.
template <class S>
class Rows {
 public:
  Rows(int count, int width, std::uint64_t seed)
      : width_(width),
        elements_(static_cast<std::size_t>(count == 0 ? 0 : (count - 1) * stride() + width), stored<S>(NAN)) {
    Random random(seed);
    for (int j = 0; j < count; ++j) {
      for (int c = 0; c < width; ++c) elements_[j * stride() + c] = stored<S>(random.normal());
    }
  }
  int stride() const { return width_ + 3; }
  const S* data() const { return elements_.data(); }
  double at(int j, int c) const { return number_of(elements_[j * stride() + c]); }

 private:
  int width_;
  Guarded<S> elements_;
};

std::string describe(const Reading& reading, int lanes, int width) {
  return std::to_string(lanes) + " rows, width " + std::to_string(width) + ", keys " + std::to_string(reading.apart) +
         " apart, hints " + std::to_string(reading.ahead) + " ahead";
}

// Scores of keys first <= j < last; all others are left alone.
template <class Types>
void expect_right_scores(const Reading& reading, int lanes, int width, int first, int last) {
  using T = typename Types::Computed;
  using S = typename Types::Storage;
  const auto& table = kernels::decode_kernels<T>(current_isa());
  const int padded = (width + table.vector - 1) / table.vector * table.vector;
  const Rows<S> keys(last, width, 1);
  Random random(2);
  Guarded<T> queries(static_cast<std::size_t>(lanes * padded));
  for (int r = 0; r < lanes; ++r) {
    for (int c = 0; c < width; ++c) queries[r * padded + c] = static_cast<T>(random.normal());
  }
  Guarded<T> scores(static_cast<std::size_t>(last * lanes), untouched<T>);
  kernels::ScoreArgs<T> args{queries.data(), keys.data(), keys.stride(), width,  lanes,
                             first,          last,        scores.data(), nullptr};
  args.reading = reading;
  table.score[place_of<S>](args);
  for (int j = 0; j < last; ++j) {
    for (int r = 0; r < lanes; ++r) {
      if (j < first) {
        ASSERT_EQ(scores[j * lanes + r], untouched<T>) << "key " << j << ", row " << r;
        continue;
      }
      double sum = 0, size = 0;
      for (int c = 0; c < width; ++c) {
        const double product = static_cast<double>(queries[r * padded + c]) * keys.at(j, c);
        sum += product;
        size += std::abs(product);
      }
      ASSERT_NEAR(scores[j * lanes + r], sum, width * epsilon<T> * size) << "key " << j << ", row " << r;
    }
  }
}

TYPED_TEST(Decode, ScoresAreProductsInEveryOrderOfReading) {
  on_every_isa([] {
    for (const Reading& reading : readings) {
      for (const int lanes : decode_lanes) {
        for (const int width : widths) {
          SCOPED_TRACE(describe(reading, lanes, width));
          expect_right_scores<TypeParam>(reading, lanes, width, 1, 8);
          if (testing::Test::HasFatalFailure()) return;
        }
        for (const int count : counts) {
          SCOPED_TRACE(describe(reading, lanes, 20) + ", " + std::to_string(count) + " keys");
          expect_right_scores<TypeParam>(reading, lanes, 20, 0, count);
          if (count > 5) expect_right_scores<TypeParam>(reading, lanes, 20, 5, count);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  });
}

// sums * rescale + weights * values; rows beyond `rows` are left alone. Gives the sums back.
template <class Types>
std::vector<typename Types::Computed> expect_right_sums(const Reading& reading, int lanes, int rows, int width,
                                                        int count, bool first_block) {
  using T = typename Types::Computed;
  using S = typename Types::Storage;
  const auto& table = kernels::decode_kernels<T>(current_isa());
  const int padded = (width + table.vector - 1) / table.vector * table.vector;
  const Rows<S> values(count, width, 3);
  Random random(4);
  Guarded<T> weights(static_cast<std::size_t>(count * lanes)), rescale(static_cast<std::size_t>(lanes), T(0.5));
  for (int i = 0; i < count * lanes; ++i) weights[i] = static_cast<T>(random.uniform());
  Aligned<T> sums(static_cast<std::size_t>(lanes * padded), untouched<T>);
  kernels::PoolArgs<T> args{weights.data(), lanes, rows,        values.data(), values.stride(), 0,
                            width,          count, sums.data(), padded,        nullptr};
  if (!first_block) args.rescale = rescale.data();
  args.reading = reading;
  table.pool[place_of<S>](args);
  for (int r = 0; r < lanes; ++r) {
    for (int c = 0; c < width; ++c) {
      const T got = sums[static_cast<std::size_t>(r * padded + c)];
      double sum = first_block ? 0 : static_cast<double>(untouched<T>) / 2, size = sum;
      for (int j = 0; j < count; ++j) {
        const double product = static_cast<double>(weights[j * lanes + r]) * values.at(j, c);
        sum += product;
        size += std::abs(product);
      }
      if (r >= rows) {
        EXPECT_EQ(got, untouched<T>) << "row " << r << ", column " << c;
      } else {
        EXPECT_NEAR(got, sum, (count + 1) * epsilon<T> * size) << "row " << r << ", column " << c;
      }
    }
  }
  return {sums.begin(), sums.end()};
}

TYPED_TEST(Decode, SumsAreRightInEveryOrderOfReading) {
  on_every_isa([] {
    for (const Reading& reading : readings) {
      for (const int lanes : decode_lanes) {
        for (const int width : widths) {
          SCOPED_TRACE(describe(reading, lanes, width));
          expect_right_sums<TypeParam>(reading, lanes, lanes, width, 9, true);
          expect_right_sums<TypeParam>(reading, lanes, lanes / 2 + 1, width, 6, false);
        }
        for (const int count : counts) {
          SCOPED_TRACE(describe(reading, lanes, 20) + ", " + std::to_string(count) + " keys");
          expect_right_sums<TypeParam>(reading, lanes, lanes, 20, count, false);
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  });
}

TYPED_TEST(Decode, HintsChangeNoBit) {
  on_every_isa([] {
    for (const int apart : {1, kernels::decode_keys / kernels::decode_streams}) {
      EXPECT_EQ(expect_right_sums<TypeParam>({apart, 0}, 2, 2, 64, 300, true),
                expect_right_sums<TypeParam>({apart, 7}, 2, 2, 64, 300, true));
    }
  });
}

}  // namespace
}  // namespace qkv::test
