// attention/masked_softmax_test.cpp: softmax over the first valid entries of each row.
#include <qkv/masked_softmax.h>

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "reference/masked_softmax.h"
#include "support/close.h"
#include "support/errors.h"
#include "support/isas.h"
#include "support/layout.h"
#include "support/random.h"

namespace qkv::test {
namespace {

void expect_softmax(const View& scores, const View& lens, OnEmpty on_empty) {
  const Tensor got = masked_softmax(scores, lens, on_empty);
  EXPECT_EQ(got.shape(), scores.shape());
  EXPECT_EQ(got.dtype(), scores.dtype());
  const auto exact = reference::masked_softmax<double>(scores, lens, on_empty);
  const auto plain = reference::masked_softmax<float>(scores, lens, on_empty);
  // A weight's relative error is the rounding of its score, so scores are what is rounded on the way.
  EXPECT_TRUE(is_close(got, {exact, plain, 1 + largest_magnitude(scores)}));
}

TEST(MaskedSoftmax, IsRightForEverySizeAndEveryWayToSayLengths) {
  on_every_isa([] {
    for (const Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::float16, Dtype::bfloat16}) {
      for (const std::int64_t Tk : {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 64, 65, 257, 1000}) {
        for (const double magnitude : {1.0, 1000.0}) {
          const Tensor scores = random_tensor({3, 4, Tk}, 1, dtype, magnitude);
          const Tensor per_sequence = random_integers({3}, 2, 0, Tk),
                       per_row = random_integers({3, 4}, 3, 0, Tk, Dtype::int32);
          for (const OnEmpty answer : {OnEmpty::zero, OnEmpty::uniform, OnEmpty::nan}) {
            SCOPED_TRACE(std::string(qkv::name_of(dtype)) + scores.shape().text());
            expect_softmax(scores, {}, answer);
            expect_softmax(scores, per_sequence, answer);
            expect_softmax(scores, per_row, answer);
          }
        }
      }
    }
  });
}

TEST(MaskedSoftmax, TakesRankTwoAsOneSequence) {
  const Tensor scores = random_tensor({4, 9}, 1), one = Tensor::of<std::int64_t>({5}, {1}),
               four = Tensor::of<std::int64_t>({5, 0, 9, 1}, {1, 4});
  expect_softmax(scores, {}, OnEmpty::zero);
  expect_softmax(scores, one, OnEmpty::zero);
  expect_softmax(scores, four, OnEmpty::zero);
}

// The example of Dive into Deep Learning: two sequences of two rows of four scores.
TEST(MaskedSoftmax, GivesTheTextbooksUniformRowForLengthZero) {
  const Tensor scores = random_tensor({2, 2, 4}, 1), lens = Tensor::of<std::int64_t>({2, 0}, {2});
  const Tensor weights = masked_softmax(scores, lens, OnEmpty::uniform);
  for (const std::size_t row : {0u, 1u}) {
    EXPECT_NEAR(weights.values<float>()[row * 4] + weights.values<float>()[row * 4 + 1], 1, 1e-6f);
    EXPECT_EQ(weights.values<float>()[row * 4 + 2], 0);
  }
  for (const float w : weights.values<float>().subspan(8)) EXPECT_EQ(w, 0.25f);
}

TEST(MaskedSoftmax, EntriesBeyondTheLengthHaveNoInfluence) {
  on_every_isa([] {
    const float bad[] = {std::nanf(""), std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity()};
    for (const float poison : bad) {
      Tensor scores = random_tensor({1, 3, 20}, 1), lens = Tensor::of<std::int64_t>({13}, {1});
      const Tensor clean = masked_softmax(scores, lens);
      for (std::size_t at = 0; at < 60; ++at) {
        if (at % 20 >= 13) scores.values<float>()[at] = poison;
      }
      EXPECT_TRUE(same_bits(masked_softmax(scores, lens), clean));
    }
  });
}

TEST(MaskedSoftmax, NanInsideTheLengthMakesItsRowNan) {
  on_every_isa([] {
    for (std::size_t at = 0; at < 20; ++at) {
      Tensor scores = random_tensor({1, 2, 20}, 1);
      scores.values<float>()[at] = std::nanf("");
      const Tensor weights = masked_softmax(scores);
      for (std::size_t j = 0; j < 40; ++j) EXPECT_EQ(std::isnan(weights.values<float>()[j]), j < 20) << at;
    }
  });
}

TEST(MaskedSoftmax, TakesAnyStrides) {
  const Tensor scores = random_tensor({1, 2, 5, 9}, 1);
  for (const Layout layout : all_layouts) {
    const LaidOut laid(scores, layout);
    const MutableView x = laid.view();
    const View rank3(x.data(), x.dtype(), {2, 5, 9}, {x.stride(1), x.stride(2), x.stride(3)});
    SCOPED_TRACE(name_of(layout));
    expect_softmax(rank3, {}, OnEmpty::zero);
  }
}

TEST(MaskedSoftmax, RefusesWhatMakesNoSense) {
  const Tensor scores = random_tensor({2, 3, 4}, 1);
  const Tensor three({3}, Dtype::int64), floats({2}), five = Tensor::of<std::int64_t>({1, 5}, {2}),
                                                      zero({2}, Dtype::int64), integers({2, 3, 4}, Dtype::int64);
  expect_error<ShapeError>([&] { masked_softmax(scores, three); }, {"masked_softmax", "[3]", "B = 2", "Tq = 3"});
  expect_error<DtypeError>([&] { masked_softmax(scores, floats); }, {"masked_softmax", "float32"});
  expect_error<ShapeError>([&] { masked_softmax(scores, five); }, {"masked_softmax", "5", "4"});
  expect_error<DtypeError>([&] { masked_softmax(integers); }, {"masked_softmax", "int64"});
  expect_error<ShapeError>([&] { masked_softmax(random_tensor({4}, 1)); }, {"masked_softmax", "[4]"});
  expect_error<OptionError>([&] { masked_softmax(scores, zero, OnEmpty::error); }, {"masked_softmax"});
}

}  // namespace
}  // namespace qkv::test
