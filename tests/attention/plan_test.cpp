// attention/plan_test.cpp: plan says what attend would do.
#include <gtest/gtest.h>

#include <qkv/attend.h>

#include "support/isas.h"

namespace qkv::test {
namespace {

// A plan reads no elements, so one stands for all.
Plan plan_for(const Shape& q, const Shape& k, const AttendOptions& options = {}) {
  static const float element = 0;
  const View keys(&element, Dtype::float32, k, Strides{});
  return plan(View(&element, Dtype::float32, q, Strides{}), keys, keys, options);
}

TEST(Plan, FewQueriesAreDecodedAndManyMakePanels) {
  EXPECT_EQ(plan_for({1, 8, 1, 64}, {1, 8, 4096, 64}).kernel, "decode");
  EXPECT_EQ(plan_for({1, 8, 512, 64}, {1, 8, 512, 64}).kernel, "panel");
}

TEST(Plan, SaysWhyInASentence) {
  for (const std::int64_t Tq : {1, 512}) {
    const Plan p = plan_for({1, 8, Tq, 64}, {1, 8, 512, 64});
    EXPECT_GT(p.why.size(), 20u);
    EXPECT_NE(p.why.find(std::to_string(Tq)), std::string::npos) << "the number that decided is in: " << p.why;
  }
}

TEST(Plan, NamesTheInstructionSet) {
  on_every_isa([] {
    const Plan p = plan_for({1, 8, 512, 64}, {1, 8, 512, 64});
    EXPECT_EQ(p.isa, name_of(current_isa()));
    EXPECT_GT(p.panel, 0);
    EXPECT_GT(p.block, 0);
    EXPECT_GT(p.tasks, 0);
  });
}

// The choice may depend on Tq, widths, dtype, options and instruction set, and on nothing else (S14).
TEST(Plan, TheKernelDoesNotDependOnBatchHeadsThreadsOrKeys) {
  for (const Mask& mask : {Mask(), window(100, 100, bottom_right()), causal(top_left())}) {
    for (const std::int64_t Tq : {1, 2, 3, 4, 5, 8, 16, 64}) {
      const Plan one = plan_for({1, 1, Tq, 64}, {1, 1, 100, 64}, {.mask = mask});
      for (const std::int64_t B : {1, 7, 64}) {
        for (const std::int64_t Tk : {1, 100, 100000}) {
          for (const int threads : {1, 16}) {
            const Plan other = plan_for({B, 8, Tq, 64}, {B, 8, Tk, 64}, {.mask = mask, .threads = threads});
            EXPECT_EQ(other.kernel, one.kernel) << "Tq " << Tq << ", B " << B << ", Tk " << Tk;
            EXPECT_EQ(other.block, one.block);
            EXPECT_EQ(other.panel, one.panel);
          }
        }
      }
    }
  }
}

TEST(Plan, ANarrowWindowHasLongBlocks) {
  const std::int64_t usual = plan_for({1, 8, 512, 64}, {1, 8, 512, 64}).block;
  EXPECT_GT(plan_for({1, 8, 512, 64}, {1, 8, 512, 64}, {.mask = window(128, 128)}).block, usual);
  EXPECT_GT(plan_for({1, 8, 512, 64}, {1, 8, 512, 64}, {.mask = window(128, -1) & causal()}).block, usual);
  EXPECT_EQ(plan_for({1, 8, 512, 64}, {1, 8, 512, 64}, {.mask = window(400, 0)}).block, usual);
  EXPECT_EQ(plan_for({1, 8, 512, 64}, {1, 8, 512, 64}, {.mask = causal()}).block, usual);
}

TEST(Plan, UsesNoMoreThreadsThanAskedFor) {
  EXPECT_EQ(plan_for({1, 8, 512, 64}, {1, 8, 512, 64}, {.threads = 1}).threads, 1);
  EXPECT_LE(plan_for({1, 8, 512, 64}, {1, 8, 512, 64}, {.threads = 3}).threads, 3);
  EXPECT_EQ(plan_for({1, 1, 1, 8}, {1, 1, 1, 8}, {.threads = 8}).threads, 1) << "one task needs one thread";
}

TEST(Plan, MemoryIsLinearInTheLengths) {
  on_every_isa([] {
    const std::int64_t T = 65536;
    const Plan p = plan_for({1, 1, T, 64}, {1, 1, T, 64}, {.threads = 1});
    EXPECT_GT(p.peak_bytes, 0);
    EXPECT_LT(p.peak_bytes, 100'000'000) << "the matrix of weights alone would be 17 GB";
    const Plan twice = plan_for({1, 1, 2 * T, 64}, {1, 1, 2 * T, 64}, {.threads = 1});
    EXPECT_LE(twice.peak_bytes, 2 * p.peak_bytes + 1'000'000);
    EXPECT_LT(plan_for({1, 1, 1, 64}, {1, 1, T, 64}, {.threads = 1}).peak_bytes, 100'000'000);
    // What each key got is summed by sixteen runs of queries per head, or as many as there are groups: with AVX-512 43
    // panels of 48 queries in groups of 5.
    const std::int64_t runs = current_isa() == Isa::avx512 ? 9 : 16;
    const Plan masses = plan_for({64, 8, 2048, 64}, {64, 8, 2048, 64}, {.want_mass = true, .threads = 1});
    EXPECT_GT(masses.peak_bytes, 64 * 8 * runs * 2048 * 4);
  });
}

}  // namespace
}  // namespace qkv::test
