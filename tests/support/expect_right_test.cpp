// support/expect_right_test.cpp: a right answer passes, a wrong one is found, for every score, weighing and statistic.
#include <algorithm>
#include <cmath>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "reference/attend.h"
#include "support/problem.h"

namespace qkv::test {
namespace {

template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, bool wanted = true) {
  return wanted ? Tensor::copy_of(View(values, shape)) : Tensor();
}

// What the reference gives in plain float32, in the form of attend's answer.
Attended plain_answer(const Problem& p) {
  const AttendOptions& o = p.options();
  const auto all = reference::attend<float>(p.q(), p.k(), p.v(), o);
  const std::int64_t B = p.q().extent(0), H = p.q().extent(1), Tq = p.q().extent(2), Tk = p.k().extent(2);
  Attended got;
  got.out = tensor(all.out, {B, H, Tq, p.v().extent(3)});
  got.lse = tensor(all.lse, {B, H, Tq}, o.want_lse);
  got.weights = tensor(all.weights, {B, H, Tq, Tk}, o.want_weights);
  got.scores = tensor(all.scores, {B, H, Tq, Tk});
  got.mass = tensor(all.mass, {B, H, Tk}, o.want_mass);
  got.entropy = tensor(all.entropy, {B, H, Tq}, o.want_entropy);
  got.effective = tensor(all.effective, {B, H, Tq}, o.want_effective);
  got.row_weights = tensor(all.row_weights, {B, H, o.want_rows.extent(0), Tk});
  got.top_weights = tensor(all.top_weights, {B, H, Tq, o.want_top}, o.want_top > 0);
  got.top_indices = tensor(all.top_indices, {B, H, Tq, o.want_top}, o.want_top > 0);
  const Weigh::Kind kind = o.weigh.kind;
  got.state = tensor(all.state, {B, H, Tq}, o.want_partial && kind != Weigh::Kind::raw);
  got.index = tensor(all.index, {B, H, Tq}, o.want_partial && kind == Weigh::Kind::hard);
  if (!o.want_partial) return got;
  got.state_kind = kind == Weigh::Kind::hard                                ? PartialState::best
                   : kind == Weigh::Kind::raw                               ? PartialState::answer
                   : kind == Weigh::Kind::uniform                           ? PartialState::count
                   : kind == Weigh::Kind::normalize && !o.score.is_kernel() ? PartialState::sum
                                                                            : PartialState::log_sum;
  return got;
}

Case small(Score::Kind score, const Weigh& weigh, std::uint64_t seed) {
  Case c{.B = 1, .Hk = 1, .Tq = 5, .Tk = 13, .seed = seed, .score = score, .Dk = 7, .weigh = weigh, .temperature = 0.8};
  return with_all_statistics(c);
}

TEST(ExpectRight, TakesAPlainFloat32ComputationForRight) {
  std::uint64_t seed = 0;
  for (const Score::Kind score : all_score_kinds) {
    for (const Weigh& weigh : all_weighings()) {
      for (const std::vector<MaskKind>& masks :
           {std::vector<MaskKind>{}, {MaskKind::bias}, {MaskKind::causal}, {MaskKind::edit_by, MaskKind::keep}}) {
        for (const Bandwidth bandwidth : all_bandwidths) {
          Case c = small(score, weigh, ++seed);
          c.masks = masks;
          c.bandwidth = bandwidth;
          c.parameters_per_head = seed % 2 == 0;
          SCOPED_TRACE(c.text());
          const Problem p(c);
          expect_right(plain_answer(p), p.q(), p.k(), p.v(), p.options());
          if (HasFailure()) return;
        }
      }
    }
  }
}

// An answer to a question with another score, weighing or temperature, or with one number that is off.
void expect_wrong(const Attended& got, const Problem& p, const char* what) {
  testing::TestPartResultArray failures;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    expect_right(got, p.q(), p.k(), p.v(), p.options());
  }
  EXPECT_GT(failures.size(), 0) << what << " was not found";
}

// Makes the largest number larger by two thousandths.
void nudge(Tensor& x) {
  float* largest = nullptr;
  for (float& element : x.values<float>()) {
    if (std::isfinite(element) && (largest == nullptr || std::abs(element) > std::abs(*largest))) largest = &element;
  }
  if (largest != nullptr) *largest *= 1.002f;
}

TEST(ExpectRight, FindsANumberThatIsOff) {
  std::uint64_t seed = 0;
  for (const Score::Kind score : all_score_kinds) {
    for (const Weigh& weigh : all_weighings()) {
      const Case c = small(score, weigh, ++seed);
      SCOPED_TRACE(c.text());
      const Problem p(c);
      for (const auto& [member, name] : {std::pair{&Attended::out, "out"},
                                         {&Attended::lse, "lse"},
                                         {&Attended::weights, "weights"},
                                         {&Attended::mass, "mass"},
                                         {&Attended::entropy, "entropy"},
                                         {&Attended::row_weights, "row_weights"},
                                         {&Attended::effective, "effective"},
                                         {&Attended::top_weights, "top_weights"}}) {
        Attended got = plain_answer(p);
        if (!(got.*member)) continue;
        const Tensor before = (got.*member).clone();
        nudge(got.*member);
        if (std::ranges::equal(before.values<float>(), (got.*member).values<float>())) continue;
        expect_wrong(got, p, name);
      }
    }
  }
}

TEST(ExpectRight, FindsAWrongPlace) {
  for (const Weigh& weigh : {softmax(), hard(), top_k(3)}) {
    const Problem p(small(Score::Kind::dot, weigh, 1));
    Attended got = plain_answer(p);
    auto places = got.top_indices.values<std::int64_t>();
    std::swap(places[0], places[1]);
    expect_wrong(got, p, "a wrong order");
    if (weigh.kind != Weigh::Kind::hard) continue;
    got = plain_answer(p);
    ++got.index.values<std::int64_t>()[2];
    expect_wrong(got, p, "a wrong index");
  }
}

TEST(ExpectRight, LeavesFewRowsUndecided) {
  // Twins tie exactly: whoever takes the later one is wrong.
  const Problem p(small(Score::Kind::scaled_dot, hard(), 1));
  Attended got = plain_answer(p);
  for (std::int64_t& place : got.index.values<std::int64_t>()) {
    if (place % 5 == 1 && place + 3 < 13) {
      place += 3;
      expect_wrong(got, p, "a later one among equals");
      return;
    }
  }
  FAIL() << "no row has its best score twice";
}

}  // namespace
}  // namespace qkv::test
