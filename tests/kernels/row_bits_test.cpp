// kernels/row_bits_test.cpp: what rows of numbers or flags exclude, as one word of bits a key.
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/block_data.h"
#include "kernels/rows.h"

namespace qkv::test {
namespace {

// On both sides of the vectors of bytes and of words.
constexpr int counts[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 192};
constexpr int row_counts[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 39, 40, 41, 47, 48, 63, 64};

// Calls check(rows, count, stride) on every instruction set; rows are further apart than they are long.
template <class Check>
void for_every_size(Check check) {
  on_every_isa([&] {
    for (const int rows : row_counts) {
      for (const int count : counts) check(rows, count, count + 3);
    }
  });
}

template <class Bit>
void expect_bits(const Aligned<kernels::RowBits>& words, int rows, Bit bit) {
  for (std::size_t j = 0; j < words.size(); ++j) {
    kernels::RowBits expected = 0;
    for (int r = 0; r < rows; ++r) expected |= kernels::RowBits{bit(r, static_cast<int>(j))} << r;
    ASSERT_EQ(words[j], expected) << rows << " rows, key " << j << " of " << words.size();
  }
}

template <class T>
class RowBits : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(RowBits, Types);

TYPED_TEST(RowBits, AreSigns) {
  using T = TypeParam;
  for_every_size([](int rows, int count, int stride) {
    Random random(static_cast<std::uint64_t>(rows * 1000 + count));
    Aligned<T> numbers(static_cast<std::size_t>(rows * stride));
    for (T& x : numbers) x = random.chance(0.4) ? -infinity<T> : T(0);
    Aligned<kernels::RowBits> words(static_cast<std::size_t>(count), 0xdeadbeef);
    kernels::row_kernels<T>().gather_signs(numbers.data(), stride, rows, count, words.data());
    expect_bits(words, rows,
                [&](int r, int j) { return std::signbit(numbers[static_cast<std::size_t>(r * stride + j)]); });
  });
}

TYPED_TEST(RowBits, AreFlagsThatAreNotAsKept) {
  for (const bool kept : {false, true}) {
    for_every_size([kept](int rows, int count, int stride) {
      Random random(static_cast<std::uint64_t>(rows * 1000 + count));
      std::vector<std::uint8_t> flags(static_cast<std::size_t>(rows * stride));
      for (std::uint8_t& flag : flags) flag = static_cast<std::uint8_t>(random.below(2) * random.below(256));
      Aligned<kernels::RowBits> words(static_cast<std::size_t>(count), 0xdeadbeef);
      kernels::row_kernels<TypeParam>().gather_flags(flags.data(), stride, kept, rows, count, words.data());
      expect_bits(words, rows,
                  [&](int r, int j) { return (flags[static_cast<std::size_t>(r * stride + j)] != 0) != kept; });
    });
  }
}

}  // namespace
}  // namespace qkv::test
