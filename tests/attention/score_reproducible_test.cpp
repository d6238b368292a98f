// attention/score_reproducible_test.cpp: the same bits for any number of threads and whatever else is in the batch, for
// every score, weighing and statistic.
#include <gtest/gtest.h>

#include "support/close.h"
#include "support/isas.h"
#include "support/problem.h"
#include "support/random.h"
#include "support/stations.h"

namespace qkv::test {
namespace {

class SameBits : public testing::TestWithParam<Stations> {};
INSTANTIATE_TEST_SUITE_P(Reproducible, SameBits, testing::ValuesIn(all_stations()), name_of_stations);

constexpr std::pair<Tensor Attended::*, const char*> statistics[] = {{&Attended::out, "out"},
                                                                     {&Attended::lse, "lse"},
                                                                     {&Attended::weights, "weights"},
                                                                     {&Attended::row_weights, "row_weights"},
                                                                     {&Attended::scores, "scores"},
                                                                     {&Attended::mass, "mass"},
                                                                     {&Attended::top_weights, "top_weights"},
                                                                     {&Attended::top_indices, "top_indices"},
                                                                     {&Attended::entropy, "entropy"},
                                                                     {&Attended::effective, "effective"},
                                                                     {&Attended::state, "state"},
                                                                     {&Attended::index, "index"}};

// Few queries with more keys than a run of decode has; many queries with more keys than a block has.
std::vector<Case> shapes(const Stations& stations) {
  std::vector<Case> all = {{.B = 3, .H = 4, .Hk = 2, .Tq = 1, .Tk = 2100, .D = 7, .Dv = 9},
                           {.B = 2, .H = 4, .Hk = 1, .Tq = 4, .Tk = 600, .D = 9, .Dv = 7},
                           {.B = 3, .H = 2, .Hk = 2, .Tq = 70, .Tk = 300, .D = 8, .Dv = 8}};
  for (Case& c : all) {
    c = with_all_statistics(with_stations(stations, c));
    c.E = 3;
    c.parameters_per_head = true;
  }
  return all;
}

TEST_P(SameBits, ForAnyNumberOfThreads) {
  on_every_isa([&] {
    for (Case& c : shapes(GetParam())) {
      for (const std::vector<MaskKind>& masks : {std::vector<MaskKind>{}, {MaskKind::lengths, MaskKind::bias}}) {
        c.masks = masks;
        SCOPED_TRACE(c.text());
        Problem p(c);
        p.options().threads = 1;
        const Attended one = attend(p.q(), p.k(), p.v(), p.options());
        for (const int threads : {2, 3, 8}) {
          p.options().threads = threads;
          const Attended many = attend(p.q(), p.k(), p.v(), p.options());
          for (const auto& [member, name] : statistics) {
            EXPECT_TRUE(same_bits(many.*member, one.*member)) << "in " << name << ", " << threads << " threads";
          }
        }
      }
    }
  });
}

TEST_P(SameBits, ForASequenceAlone) {
  on_every_isa([&] {
    for (const Case& c : shapes(GetParam())) {
      SCOPED_TRACE(c.text());
      Problem p(c);
      const Tensor lens = random_integers({c.B}, 7, c.Tk / 3, c.Tk);
      const auto run = [&](const View& q, const View& k, const View& v, const View& lengths_of) {
        AttendOptions options = p.options();
        options.threads = 2;
        options.mask = lengths(lengths_of) & causal(bottom_right());
        return attend(q, k, v, options);
      };
      const Attended batch = run(p.q(), p.k(), p.v(), lens);
      for (std::int64_t b = 0; b < c.B; ++b) {
        const auto only = [&](const View& x) { return x.slice(0, b, 1); };
        const Attended alone = run(only(p.q()), only(p.k()), only(p.v()), only(lens));
        for (const auto& [member, name] : statistics) {
          if (!(batch.*member)) continue;
          EXPECT_TRUE(same_bits(alone.*member, Tensor::copy_of(only(batch.*member))))
              << "in " << name << ", sequence " << b;
        }
      }
    }
  });
}

// A prefix of the keys that is seen by lengths gives the bits of the prefix alone.
TEST_P(SameBits, HoweverFarThePaddingReaches) {
  on_every_isa([&] {
    for (const Case& c : shapes(GetParam())) {
      SCOPED_TRACE(c.text());
      Problem p(c);
      const std::int64_t length = c.Tk * 2 / 3;
      Tensor lens({c.B}, Dtype::int64);
      for (std::int64_t& l : lens.values<std::int64_t>()) l = length;
      AttendOptions options = p.options();
      options.mask = lengths(lens);
      const Attended padded = attend(p.q(), p.k(), p.v(), options);
      const Attended cut = attend(p.q(), p.k().slice(2, 0, length), p.v().slice(2, 0, length), options);
      for (const auto& [member, name] : {std::pair{&Attended::out, "out"},
                                         {&Attended::lse, "lse"},
                                         {&Attended::entropy, "entropy"},
                                         {&Attended::state, "state"}}) {
        EXPECT_TRUE(same_bits(padded.*member, cut.*member)) << "in " << name;
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
