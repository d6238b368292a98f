// attention/score_errors_test.cpp: every score, weighing or statistic that makes no sense is refused, with a text that
// says what, why and with which shapes or values.
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include <qkv/attend.h>

#include "support/errors.h"
#include "support/random.h"
#include "support/refused.h"

namespace qkv::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(ScoreErrors, AdditiveAndKernelsTakeNoScale) {
  const Score additively = additive(claim({3, 8}), claim({3, 8}), claim({3}));
  for (const Score& score : {additively, gaussian(), laplace(), boxcar(), triangular(), epanechnikov(), constant()}) {
    expect_refused<OptionError>({.score = score, .scale = 0.5}, {"scale"});
  }
}

TEST(ScoreErrors, KernelsTakeNoSoftcap) {
  for (const Score& score : {gaussian(), laplace(), boxcar(), triangular(), epanechnikov(), constant()}) {
    expect_refused<OptionError>({.score = score, .softcap = 5}, {"softcap"});
  }
}

TEST(ScoreErrors, OnlyBilinearAndAdditiveTakeTwoWidths) {
  const Right r;
  const View narrow = claim({2, 2, 9, 7});
  for (const Score& score : {dot(), scaled_dot(), cosine(), gaussian(), laplace(), boxcar(), constant()}) {
    expect_refused<ShapeError>(r.q, narrow, r.v, {.score = score},
                               {"same width D", "[2, 4, 6, 8]", "[2, 2, 9, 7]", "[2, 2, 9, 5]"});
  }
}

TEST(ScoreErrors, TheMatrixOfABilinearFormFitsBothWidths) {
  const Right r;
  const View k = claim({2, 2, 9, 7});
  for (const Shape& shape :
       {Shape{8}, Shape{7, 8}, Shape{8, 8}, Shape{4, 7, 8}, Shape{2, 8, 7}, Shape{1, 8, 7}, Shape{1, 4, 8, 7}}) {
    expect_refused<ShapeError>(r.q, k, r.v, {.score = bilinear(claim(shape))},
                               {"M", shape.text(), "[2, 4, 6, 8]", "[2, 2, 9, 7]"});
  }
  expect_refused<ShapeError>(r.q, k, r.v, {.score = bilinear(View())}, {"M"});
  expect_refused<DtypeError>(r.q, k, r.v, {.score = bilinear(claim({8, 7}, Dtype::int32))}, {"M", "int32"});
}

TEST(ScoreErrors, TheWeightsOfAnAdditiveScoreFitEachOtherAndBothWidths) {
  const Right r;
  const View k = claim({2, 2, 9, 7});
  const auto refused = [&](const Shape& Wq, const Shape& Wk, const Shape& w) {
    expect_refused<ShapeError>(r.q, k, r.v, {.score = additive(claim(Wq), claim(Wk), claim(w))},
                               {Wq.text(), Wk.text(), w.text()});
  };
  refused({3, 7}, {3, 7}, {3});  // Wq is not Dq wide
  refused({3, 8}, {3, 8}, {3});  // Wk is not Dk wide
  refused({3, 8}, {4, 7}, {3});  // E differs
  refused({3, 8}, {3, 7}, {4});
  refused({2, 3, 8}, {3, 7}, {3});  // heads: neither shared nor H
  refused({3, 8}, {2, 3, 7}, {3});
  refused({3, 8}, {3, 7}, {2, 3});
  refused({1, 3, 8}, {3, 7}, {3});
  refused({4, 3, 8}, {2, 3, 7}, {3});
  refused({8}, {3, 7}, {3});  // ranks
  refused({3, 8}, {1, 4, 3, 7}, {3});
  refused({3, 8}, {3, 7}, {});
  expect_refused<ShapeError>(r.q, k, r.v, {.score = additive(View(), claim({3, 7}), claim({3}))}, {"Wq"});
  expect_refused<DtypeError>(r.q, k, r.v, {.score = additive(claim({3, 8}), claim({3, 7}, Dtype::boolean), claim({3}))},
                             {"Wk", "boolean"});
}

TEST(ScoreErrors, ABandwidthIsPositive) {
  for (const double sigma : {0.0, -1.0, infinity, std::nan("")}) {
    for (const Score& score :
         {gaussian(sigma), laplace(sigma), boxcar(sigma), triangular(sigma), epanechnikov(sigma)}) {
      expect_refused<OptionError>({.score = score}, {"sigma"});
    }
  }
  for (const float sigma : {0.0f, -1.0f, static_cast<float>(infinity), std::nanf("")}) {
    const Tensor one = Tensor::of<float>({sigma}, {1}), some = Tensor::of<float>({1, 1, 1, sigma}, {4, 1});
    for (const Tensor* array : {&one, &some}) {
      for (const Score& score : {gaussian(*array), laplace(*array), boxcar(*array)}) {
        const Right r;
        expect_error<OptionError>([&] { attend(r.q, r.k, r.v, {.score = score}); }, {"attend", "sigma"});
      }
    }
  }
}

TEST(ScoreErrors, ABandwidthHasOneOfFourShapes) {
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{4}, Shape{2, 8}, Shape{4, 7}, Shape{1, 4, 8}}) {
    expect_refused<ShapeError>({.score = gaussian(claim(shape))}, {"sigma", shape.text(), "D = 8"});
  }
  expect_refused<DtypeError>({.score = laplace(claim({8}, Dtype::int64))}, {"sigma", "int64"});
}

TEST(ScoreErrors, YourFunctionMustTakeTheTypeOfTheComputation) {
  const auto only_float = [](const ScoreTile<float>&) {};
  const auto only_double = [](const ScoreTile<double>&) {};
  const auto f64 = Dtype::float64;
  expect_refused<OptionError>(claim({6, 8}, f64), claim({9, 8}, f64), claim({9, 5}, f64),
                              {.score = score_by(only_float)}, {"score_by", "ScoreTile<double>", "float64"});
  expect_refused<OptionError>({.score = score_by(only_double)}, {"score_by", "ScoreTile<float>", "float32"});
}

TEST(ScoreErrors, ATemperatureIsPositive) {
  for (const double temperature : {0.0, -1.0, infinity, std::nan("")}) {
    expect_refused<OptionError>({.temperature = temperature}, {"temperature"});
  }
}

TEST(WeighErrors, AtLeastOneIsTaken) {
  expect_refused<OptionError>({.weigh = top_k(0)}, {"top_k", "0"});
  expect_refused<OptionError>({.weigh = top_k(-3)}, {"top_k", "-3"});
}

TEST(WeighErrors, AMinimumIsANumber) { expect_refused<OptionError>({.weigh = hard(std::nan(""))}, {"minimum"}); }

TEST(WeighErrors, SomeWeighingsHaveNoLogSumAndNoEntropy) {
  for (const Weigh& weigh : {raw(), hard(), uniform()}) {
    expect_refused<OptionError>({.weigh = weigh, .want_lse = true}, {"log-sum-exp"});
    expect_refused<OptionError>({.weigh = weigh, .want_entropy = true}, {"entropy"});
    expect_refused<OptionError>({.weigh = weigh, .want_effective = true}, {"effective"});
  }
}

TEST(WeighErrors, UniformHasNoLargestScores) {
  expect_refused<OptionError>({.weigh = uniform(), .want_top = 3}, {"want_top", "uniform"});
}

TEST(WeighErrors, ANumberOfLargestScoresIsNotNegative) {
  expect_refused<OptionError>({.want_top = -1}, {"want_top", "-1"});
}

TEST(WeighErrors, PartsOfTopKCannotBeMerged) {
  expect_refused<OptionError>({.weigh = top_k(3), .want_partial = true}, {"want_partial", "top_k"});
  expect_refused<OptionError>({.dropout = 0.1, .want_partial = true}, {"want_partial", "dropout"});
}

TEST(WeighErrors, PartsThatAnswerForEmptyRowsCannotBeMerged) {
  for (const OnEmpty on_empty : {OnEmpty::uniform, OnEmpty::nan, OnEmpty::error}) {
    expect_refused<OptionError>({.on_empty = on_empty, .want_partial = true}, {"want_partial", "on_empty"});
  }
}

TEST(RowErrors, ChosenRowsAreQueries) {
  const Right r;
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{6}, std::numeric_limits<std::int64_t>::max()}) {
    const Tensor rows = Tensor::of<std::int64_t>({0, wrong}, {2});
    expect_error<ShapeError>([&] { attend(r.q, r.k, r.v, {.want_rows = rows}); },
                             {"attend", "want_rows", std::to_string(wrong), "Tq = 6"});
  }
  expect_refused<DtypeError>({.want_rows = claim({2})}, {"want_rows", "int32 or int64", "float32"});
  expect_refused<ShapeError>({.want_rows = claim({2, 2}, Dtype::int64)}, {"want_rows", "[2, 2]"});
}

TEST(IntoErrors, StatisticsMustHaveTheRightShapeAndDtype) {
  const Tensor q = random_tensor({2, 4, 6, 8}, 1), k = random_tensor({2, 2, 9, 8}, 2),
               v = random_tensor({2, 2, 9, 5}, 3);
  const Tensor rows = Tensor::of<std::int64_t>({1, 2, 3}, {3});
  Tensor out({2, 4, 6, 5}), wrong({2, 4, 7}), half({2, 4, 6}, Dtype::float16), tops({2, 4, 6, 2}), floats({2, 4, 6, 2});
  const auto refused = [&]<class E>(E, const AttendInto& into, const AttendOptions& options,
                                    std::initializer_list<std::string> parts) {
    expect_error<E>([&] { attend_into(q, k, v, into, options); }, parts);
  };
  const ShapeError shape("");
  const DtypeError dtype("");
  refused(shape, {.out = out, .mass = wrong}, {.want_mass = true}, {"attend_into", "mass", "[2, 4, 7]", "[2, 4, 9]"});
  refused(shape, {.out = out, .entropy = wrong}, {.want_entropy = true},
          {"attend_into", "entropy", "[2, 4, 7]", "[2, 4, 6]"});
  refused(shape, {.out = out, .effective = wrong}, {.want_effective = true}, {"attend_into", "effective", "[2, 4, 7]"});
  refused(shape, {.out = out, .row_weights = out}, {.want_rows = rows},
          {"attend_into", "row_weights", "[2, 4, 6, 5]", "[2, 4, 3, 9]"});
  refused(dtype, {.out = out, .entropy = half}, {.want_entropy = true},
          {"attend_into", "entropy", "float16", "float32"});
  Tensor places({2, 4, 6, 3}, Dtype::int64), three({2, 4, 6, 3});
  refused(shape, {.out = out, .top_weights = tops, .top_indices = places}, {.want_top = 3},
          {"attend_into", "top_weights", "[2, 4, 6, 2]", "[2, 4, 6, 3]"});
  refused(dtype, {.out = out, .top_weights = three, .top_indices = three}, {.want_top = 3},
          {"attend_into", "top_indices", "float32", "int64"});
}

}  // namespace
}  // namespace qkv::test
