// attention/errors_test.cpp: every wrong call is refused, with a text that says what, why and with which shapes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <qkv/attend.h>
#include <qkv/threads.h>

#include "support/errors.h"
#include "support/isas.h"
#include "support/random.h"
#include "support/refused.h"

namespace qkv::test {
namespace {

template <class E>
void expect_mask_refused(const Mask& mask, std::initializer_list<std::string> parts) {
  expect_refused<E>({.mask = mask}, parts);
}

TEST(Errors, WidthsOfQueriesAndKeysMustAgree) {
  expect_refused<ShapeError>(claim({2, 4, 6, 8}), claim({2, 2, 9, 7}), claim({2, 2, 9, 5}), {},
                             {"same width D", "[2, 4, 6, 8]", "[2, 2, 9, 7]", "[2, 2, 9, 5]"});
}

TEST(Errors, NumbersOfKeysAndValuesMustAgree) {
  expect_refused<ShapeError>(claim({2, 4, 6, 8}), claim({2, 2, 9, 8}), claim({2, 2, 10, 5}), {},
                             {"same length Tk", "[2, 4, 6, 8]", "[2, 2, 9, 8]", "[2, 2, 10, 5]"});
}

TEST(Errors, HeadsOfKeysAndValuesMustAgree) {
  expect_refused<ShapeError>(claim({2, 4, 6, 8}), claim({2, 2, 9, 8}), claim({2, 4, 9, 5}), {},
                             {"heads Hk", "[2, 4, 6, 8]", "[2, 2, 9, 8]", "[2, 4, 9, 5]"});
}

TEST(Errors, BatchesMustAgree) {
  expect_refused<ShapeError>(claim({2, 4, 6, 8}), claim({3, 2, 9, 8}), claim({3, 2, 9, 5}), {},
                             {"same B", "[2, 4, 6, 8]", "[3, 2, 9, 8]", "[3, 2, 9, 5]"});
  expect_refused<ShapeError>(claim({2, 4, 6, 8}), claim({2, 2, 9, 8}), claim({1, 2, 9, 5}), {},
                             {"same B", "[1, 2, 9, 5]"});
}

TEST(Errors, QueryHeadsMustBeAMultipleOfKeyHeads) {
  expect_refused<ShapeError>(claim({2, 6, 6, 8}), claim({2, 4, 9, 8}), claim({2, 4, 9, 5}), {},
                             {"H = 6", "Hk = 4", "[2, 6, 6, 8]", "[2, 4, 9, 8]", "[2, 4, 9, 5]"});
  expect_refused<ShapeError>(claim({2, 6, 6, 8}), claim({2, 0, 9, 8}), claim({2, 0, 9, 5}), {}, {"H = 6", "Hk = 0"});
}

TEST(Errors, RanksMustAgreeAndBeTwoToFour) {
  expect_refused<ShapeError>(claim({8}), claim({8}), claim({8}), {}, {"rank", "[8]"});
  expect_refused<ShapeError>(claim({1, 1, 1, 6, 8}), claim({1, 1, 1, 9, 8}), claim({1, 1, 1, 9, 5}), {},
                             {"rank", "[1, 1, 1, 6, 8]"});
  expect_refused<ShapeError>(claim({6, 8}), claim({1, 9, 8}), claim({9, 5}), {},
                             {"rank", "[6, 8]", "[1, 9, 8]", "[9, 5]"});
  expect_refused<ShapeError>(View(), claim({9, 8}), claim({9, 5}), {}, {"rank", "[9, 8]"});
}

TEST(Errors, SizesThatOverflowAreRefused) {
  const std::int64_t huge = std::int64_t{1} << 31;
  expect_refused<ShapeError>(claim({huge, huge, huge, 1}), claim({huge, huge, 1, 1}), claim({huge, huge, 1, 1}), {},
                             {"overflow"});
  expect_refused<ShapeError>(claim({1, 1, huge * 2, 0}), claim({1, 1, huge * 2, 0}), claim({1, 1, huge * 2, 0}),
                             {.want_weights = true}, {"overflow"});
}

TEST(Errors, Float64DoesNotMix) {
  const Right r;
  expect_refused<DtypeError>(claim({2, 4, 6, 8}, Dtype::float64), r.k, r.v, {},
                             {"float64", "q is float64", "k float32", "v float32"});
  expect_refused<DtypeError>(r.q, claim({2, 2, 9, 8}, Dtype::float16), claim({2, 2, 9, 5}, Dtype::float64), {},
                             {"k float16", "v float64"});
}

TEST(Errors, OnlyFloatingDtypesAreAttended) {
  const Right r;
  for (const Dtype dtype : {Dtype::int32, Dtype::int64, Dtype::boolean}) {
    expect_refused<DtypeError>(claim({2, 4, 6, 8}, dtype), r.k, r.v, {}, {"floating", std::string(name_of(dtype))});
  }
}

TEST(Errors, TheOutputsDtypeMustFitTheComputation) {
  const Right r;
  expect_refused<DtypeError>(r.q, r.k, r.v, {.out_dtype = Dtype::float64}, {"out_dtype float64", "float32"});
  expect_refused<DtypeError>(r.q, r.k, r.v, {.out_dtype = Dtype::int32}, {"out_dtype int32"});
  const auto f64 = Dtype::float64;
  expect_refused<DtypeError>(claim({6, 8}, f64), claim({9, 8}, f64), claim({9, 5}, f64), {.out_dtype = Dtype::float32},
                             {"out_dtype float32"});
}

TEST(Errors, PositionsNeedAnAlignmentWhereLengthsDiffer) {
  const Tensor slopes({4});
  expect_mask_refused<OptionError>(causal(), {"causal", "Tq = 6", "Tk = 9", "top_left", "bottom_right"});
  expect_mask_refused<OptionError>(window(2, 2), {"window", "Tq = 6", "Tk = 9", "top_left", "bottom_right"});
  expect_mask_refused<OptionError>(alibi(slopes), {"alibi", "Tq = 6", "Tk = 9", "top_left", "bottom_right"});
}

TEST(Errors, AlignmentsMustNotContradictEachOther) {
  const Tensor slopes({4}), offsets({2}, Dtype::int64);
  expect_mask_refused<OptionError>(causal(top_left()) & window(1, 1, bottom_right()), {"different alignments"});
  expect_mask_refused<OptionError>(causal(offset(2)) & window(1, 1, offset(3)), {"different alignments"});
  expect_mask_refused<OptionError>(alibi(slopes, offset(offsets)) & causal(bottom_right()), {"different alignments"});
}

TEST(Errors, LengthsMustBeFromZeroToTk) {
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{10}, std::numeric_limits<std::int64_t>::max(),
                                   std::numeric_limits<std::int64_t>::min()}) {
    const Tensor per_sequence = Tensor::of<std::int64_t>({3, wrong}, {2});
    expect_mask_refused<ShapeError>(lengths(per_sequence), {std::to_string(wrong), "sequence 1", "Tk = 9"});
    Tensor per_query({2, 6}, Dtype::int64);
    per_query.values<std::int64_t>()[7] = wrong;
    expect_mask_refused<ShapeError>(lengths(per_query), {std::to_string(wrong), "sequence 1", "Tk = 9"});
  }
}

TEST(Errors, LengthsMustBeIntegersOfTheRightShape) {
  expect_mask_refused<DtypeError>(lengths(claim({2})), {"lengths", "int32 or int64", "float32"});
  expect_mask_refused<ShapeError>(lengths(claim({3}, Dtype::int64)), {"lengths", "[3]", "B = 2"});
  expect_mask_refused<ShapeError>(lengths(claim({2, 5}, Dtype::int64)), {"lengths", "[2, 5]", "B = 2", "Tq = 6"});
  expect_mask_refused<ShapeError>(lengths(claim({2, 6, 1}, Dtype::int64)), {"lengths", "[2, 6, 1]"});
  expect_mask_refused<ShapeError>(lengths(View()), {"lengths"});
}

TEST(Errors, BooleansNeverTravelAsNumbersNorNumbersAsBooleans) {
  expect_mask_refused<DtypeError>(keep(claim({6, 9})), {"keep", "boolean", "float32"});
  expect_mask_refused<DtypeError>(drop(claim({6, 9})), {"drop", "boolean", "float32"});
  expect_mask_refused<DtypeError>(keep_keys(claim({2, 9}, Dtype::int32)), {"keep_keys", "boolean", "int32"});
  expect_mask_refused<DtypeError>(bias(claim({6, 9}, Dtype::boolean)), {"bias", "floating", "boolean"});
  expect_mask_refused<DtypeError>(alibi(claim({4}, Dtype::int32), top_left()), {"alibi", "floating", "int32"});
  expect_mask_refused<DtypeError>(block_mask(claim({1, 1}), 6, 9), {"block mask", "boolean", "float32"});
}

TEST(Errors, MasksMustBroadcastOverThePairs) {
  const auto boolean = Dtype::boolean;
  expect_mask_refused<ShapeError>(keep(claim({6, 8}, boolean)), {"keep", "[6, 8]", "[2, 4, 6, 9]"});
  expect_mask_refused<ShapeError>(drop(claim({2, 6, 9}, boolean)), {"drop", "[2, 6, 9]", "[2, 4, 6, 9]"});
  expect_mask_refused<ShapeError>(bias(claim({3, 1, 6, 9})), {"bias", "[3, 1, 6, 9]", "[2, 4, 6, 9]"});
  expect_mask_refused<ShapeError>(bias(claim({1, 2, 4, 6, 9})), {"bias", "[1, 2, 4, 6, 9]", "[2, 4, 6, 9]"});
  expect_mask_refused<ShapeError>(keep_keys(claim({9}, boolean)), {"keep_keys", "[9]", "B = 2", "Tk = 9"});
  expect_mask_refused<ShapeError>(keep_keys(claim({2, 8}, boolean)), {"keep_keys", "[2, 8]", "B = 2", "Tk = 9"});
}

TEST(Errors, SlopesAreOnePerQueryHead) {
  expect_mask_refused<ShapeError>(alibi(claim({2}), top_left()), {"alibi", "[2]", "H = 4"});
  expect_mask_refused<ShapeError>(alibi(claim({4, 1}), top_left()), {"alibi", "[4, 1]", "H = 4"});
}

TEST(Errors, OffsetsAreOneIntegerPerSequence) {
  expect_mask_refused<ShapeError>(causal(offset(claim({3}, Dtype::int64))), {"offset", "[3]", "B = 2"});
  expect_mask_refused<DtypeError>(causal(offset(claim({2}))), {"offset", "int32 or int64", "float32"});
}

TEST(Errors, ABlockMaskHasOneCellPerBlock) {
  const auto boolean = Dtype::boolean;
  expect_mask_refused<ShapeError>(block_mask(claim({2, 2}, boolean), 4, 4),
                                  {"block mask", "[2, 2]", "[2, 3]", "[2, 4, 6, 9]"});
  expect_mask_refused<ShapeError>(block_mask(claim({1, 3}, boolean), 4, 4), {"block mask", "[1, 3]", "[2, 3]"});
  expect_mask_refused<ShapeError>(block_mask(claim({3, 1, 2, 3}, boolean), 4, 4), {"block mask", "[3, 1, 2, 3]"});
  expect_mask_refused<OptionError>(block_mask(claim({2, 3}, boolean), 0, 4), {"block mask", "0 x 4"});
  expect_mask_refused<OptionError>(block_mask(claim({2, 3}, boolean), 4, -1), {"block mask", "4 x -1"});
}

TEST(Errors, NumbersThatMakeNoSenseAreRefused) {
  const Right r;
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const double scale : {nan, infinity, -infinity})
    expect_refused<OptionError>(r.q, r.k, r.v, {.scale = scale}, {"scale"});
  expect_refused<OptionError>(r.q, r.k, r.v, {.softcap = -1}, {"softcap", "-1"});
  expect_refused<OptionError>(r.q, r.k, r.v, {.softcap = nan}, {"softcap"});
  expect_refused<OptionError>(r.q, r.k, r.v, {.softcap = infinity}, {"softcap"});
  expect_refused<OptionError>(r.q, r.k, r.v, {.threads = -2}, {"threads", "-2"});
  expect_error<OptionError>([] { set_thread_count(0); }, {"0"});
}

TEST(Errors, AFunctionMustTakeTheTypeOfTheComputation) {
  const auto only_float = [](const ScoreBlock<float>&) {};
  const auto only_double = [](const ScoreBlock<double>&) {};
  const auto f64 = Dtype::float64;
  expect_refused<OptionError>(claim({6, 8}, f64), claim({9, 8}, f64), claim({9, 5}, f64), {.mask = edit_by(only_float)},
                              {"edit_by", "ScoreBlock<double>", "float64"});
  const Right r;
  expect_refused<OptionError>(r.q, r.k, r.v, {.mask = edit_by(only_double)},
                              {"edit_by", "ScoreBlock<float>", "float32"});
}

TEST(Errors, ResultsMustHaveTheRightShapeAndDtype) {
  const Tensor q = random_tensor({2, 4, 6, 8}, 1), k = random_tensor({2, 2, 9, 8}, 2),
               v = random_tensor({2, 2, 9, 5}, 3);
  Tensor out({2, 4, 6, 5}), lse({2, 4, 6}), weights({2, 4, 6, 9});
  const auto refused = [&]<class E>(E, const AttendInto& into, const AttendOptions& options,
                                    std::initializer_list<std::string> parts) {
    expect_error<E>([&] { attend_into(q, k, v, into, options); }, parts);
  };
  Tensor narrow({2, 4, 6, 4}), flat({6, 5}), doubles({2, 4, 6, 5}, Dtype::float64),
      halves({2, 4, 6, 5}, Dtype::float16);
  const ShapeError shape("");
  const DtypeError dtype("");
  refused(shape, {.out = narrow}, {}, {"attend_into", "out", "[2, 4, 6, 4]", "[2, 4, 6, 5]"});
  refused(shape, {.out = flat}, {}, {"attend_into", "out", "[6, 5]", "[2, 4, 6, 5]"});
  refused(shape, {.out = {}}, {}, {"attend_into", "out"});
  refused(dtype, {.out = doubles}, {}, {"attend_into", "out", "float64"});
  refused(shape, {.out = out, .lse = out}, {}, {"attend_into", "lse", "[2, 4, 6, 5]", "[2, 4, 6]"});
  refused(shape, {.out = out, .weights = out}, {}, {"attend_into", "weights", "[2, 4, 6, 5]", "[2, 4, 6, 9]"});
  refused(shape, {.out = out, .scores = out}, {.want_scores = ScoreStage::scaled},
          {"attend_into", "scores", "[2, 4, 6, 5]", "[2, 4, 6, 9]"});
  Tensor half_lse({2, 4, 6}, Dtype::float16);
  refused(dtype, {.out = out, .lse = half_lse}, {}, {"attend_into", "lse", "float16", "float32"});
}

TEST(Errors, ARefusedCallWritesNothing) {
  const Tensor q = random_tensor({2, 4, 6, 8}, 1), k = random_tensor({2, 2, 9, 8}, 2),
               v = random_tensor({2, 2, 9, 5}, 3);
  Tensor out({2, 4, 6, 5});
  std::ranges::fill(out.values<float>(), 7.0f);
  EXPECT_THROW(attend_into(q, k, v, {.out = out}, {.mask = causal()}), OptionError);
  for (const float x : out.values<float>()) ASSERT_EQ(x, 7.0f);
}

TEST(Errors, AnInstructionSetThatIsNotHereIsRefused) {
  const std::vector<Isa> here = supported_isas();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (std::find(here.begin(), here.end(), isa) == here.end()) {
      expect_error<OptionError>([&] { set_isa(isa); }, {std::string(name_of(isa))});
    }
  }
}

}  // namespace
}  // namespace qkv::test
