// tests/base/random_test.cpp: random bits from a key and a counter.
#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace qkv::test {
namespace {

TEST(Mixed, IsTheGeneratorSplitMix64) {
  // Its published first numbers from the state 1234567, which moves by 0x9e3779b97f4a7c15 a number.
  const std::uint64_t published[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                     4593380528125082431u, 16408922859458223821u};
  std::uint64_t state = 1234567;
  for (const std::uint64_t expected : published) {
    EXPECT_EQ(mixed(state), expected);
    state += 0x9e3779b97f4a7c15u;
  }
}

TEST(RandomKey, DependsOnEveryNameAndOnTheirOrder) {
  const std::vector<std::uint64_t> keys = {random_key(1),       random_key(2),       random_key(1, 0),
                                           random_key(1, 1),    random_key(1, 2, 3), random_key(1, 3, 2),
                                           random_key(2, 2, 3), random_key(1, 2, 4), random_key(1, -1)};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(keys[i], keys[j]) << i << ", " << j;
      // Neither half may agree: random_bits uses them apart.
      EXPECT_NE(keys[i] >> 32, keys[j] >> 32) << i << ", " << j;
      EXPECT_NE(keys[i] & 0xffffffffu, keys[j] & 0xffffffffu) << i << ", " << j;
    }
  }
}

// The same by arithmetic on natural numbers alone: x xor x >> n digit by digit, products modulo 2^32 by long division.
std::uint32_t random_bits_by_arithmetic(std::uint64_t key, std::int64_t counter) {
  constexpr std::uint64_t modulus = 4294967296u;
  const auto product = [](std::uint64_t a, std::uint64_t b) { return (a % modulus) * (b % modulus) % modulus; };
  const auto folded = [](std::uint64_t x, int places) {
    std::uint64_t result = 0;
    for (int bit = 31; bit >= 0; --bit) {
      const std::uint64_t own = (x >> bit) % 2;
      const std::uint64_t other = bit + places > 31 ? 0 : (x >> (bit + places)) % 2;
      result = 2 * result + (own + other) % 2;
    }
    return result;
  };
  const std::int64_t remainder = counter % static_cast<std::int64_t>(modulus);
  const auto place =
      static_cast<std::uint64_t>(remainder < 0 ? remainder + static_cast<std::int64_t>(modulus) : remainder);
  std::uint64_t x = (product(place, 2654435769u) + key % modulus) % modulus;
  x = product(folded(x, 16), 2146121005u);
  x = product(folded(x, 15), 2221713035u);
  x = (folded(x, 16) + key / modulus) % modulus;
  x = product(folded(x, 16), 569420461u);
  x = product(folded(x, 15), 1935289751u);
  return static_cast<std::uint32_t>(folded(x, 15));
}

TEST(RandomBits, AreTheStatedFunctionOfKeyAndCounter) {
  const std::int64_t counters[] = {0,          1,           2,  0x7fffffff,    0x80000000,
                                   0xffffffff, 0x100000000, -1, -0x80000000ll, 0x123456789abcdef};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (const std::uint64_t key : {seed, ~seed, seed << 32, random_key(seed)}) {
      for (const std::int64_t counter : counters) {
        ASSERT_EQ(random_bits(key, counter), random_bits_by_arithmetic(key, counter)) << key << ", " << counter;
      }
    }
  }
}

// A mask that a model was trained with can be made again by every later version.
TEST(RandomBits, StayTheSame) {
  static_assert(random_bits(0, 0) == 0);
  EXPECT_EQ(random_bits(0, 1), 0x0899c76du);
  EXPECT_EQ(random_bits(1, 0), 0xb87c0163u);
  EXPECT_EQ(random_bits(random_key(42, 0, 1, 2), 3), 0x42b585c3u);
}

TEST(RandomBits, CountersAreTakenModuloTwoToThe32) {
  for (const std::int64_t counter : {0ll, 1ll, 0xffffffffll}) {
    EXPECT_EQ(random_bits(7, counter), random_bits(7, counter + 0x100000000ll));
    EXPECT_EQ(random_bits(7, counter), random_bits(7, counter - 0x100000000ll));
  }
}

constexpr int many = 1 << 20;

std::vector<std::uint32_t> stream(std::uint64_t key, int count, std::int64_t first = 0) {
  std::vector<std::uint32_t> all;
  for (int i = 0; i < count; ++i) all.push_back(random_bits(key, first + i));
  return all;
}

TEST(RandomBits, OfOneKeyDoNotRepeat) {
  auto bits = stream(random_key(1), many);
  std::sort(bits.begin(), bits.end());
  EXPECT_EQ(std::adjacent_find(bits.begin(), bits.end()), bits.end());
}

// How many standard deviations `hits` of `tries` are off, where each hits with this chance.
double deviations(std::int64_t hits, std::int64_t tries, double chance) {
  const auto n = static_cast<double>(tries);
  return std::abs(static_cast<double>(hits) - n * chance) / std::sqrt(n * chance * (1 - chance));
}

// Five standard deviations: one in two million of fair tries fails, and some ten thousand are made here, the same ones
// in every run.
constexpr double allowed = 5;

TEST(RandomBits, EveryBitIsSetHalfOfTheTime) {
  for (const std::uint64_t seed : {0u, 1u, 2u}) {
    const auto bits = stream(random_key(seed), many);
    for (int bit = 0; bit < 32; ++bit) {
      const auto set = std::count_if(bits.begin(), bits.end(), [&](std::uint32_t x) { return (x >> bit) % 2 == 1; });
      EXPECT_LT(deviations(set, many, 0.5), allowed) << "bit " << bit;
    }
  }
}

TEST(RandomBits, AreBelowAThresholdAsOftenAsTheyShould) {
  for (const double chance : {0.001, 0.1, 0.25, 0.5, 0.9}) {
    const auto threshold = static_cast<std::uint32_t>(chance * 4294967296.0);
    // One long row, and many short ones, as dropout has them.
    const auto row = stream(random_key(1), many);
    const auto below = [&](std::uint32_t x) { return x < threshold; };
    EXPECT_LT(deviations(std::count_if(row.begin(), row.end(), below), many, chance), allowed) << chance;
    std::int64_t dropped = 0;
    for (int r = 0; r < many / 16; ++r) {
      const auto few = stream(random_key(1, 0, 0, r), 16);
      dropped += std::count_if(few.begin(), few.end(), below);
    }
    EXPECT_LT(deviations(dropped, many, chance), allowed) << chance;
  }
}

// Every bit of one with every bit of the other: they agree half of the time.
void expect_independent(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  const auto count = static_cast<std::int64_t>(std::min(a.size(), b.size()));
  for (int turn = 0; turn < 32; ++turn) {
    std::vector<std::int64_t> equal(32, 0);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const std::uint32_t same = ~(a[i] ^ std::rotl(b[i], turn));
      for (int bit = 0; bit < 32; ++bit) equal[static_cast<std::size_t>(bit)] += (same >> bit) % 2;
    }
    for (int bit = 0; bit < 32; ++bit) {
      ASSERT_LT(deviations(equal[static_cast<std::size_t>(bit)], count, 0.5), allowed)
          << "bits " << bit << " and " << (bit - turn + 32) % 32;
    }
  }
}

constexpr int quite_many = 1 << 17;

TEST(RandomBits, OfNeighbouringCountersAreIndependent) {
  const auto bits = stream(random_key(1), quite_many);
  for (const std::int64_t distance : {1, 2, 3, 16, 256, 65536}) {
    SCOPED_TRACE(distance);
    expect_independent(bits, stream(random_key(1), quite_many, distance));
  }
}

// The first keys of many neighbouring rows, heads, sequences or seeds.
template <class Key>
std::vector<std::uint32_t> across(Key key) {
  std::vector<std::uint32_t> all;
  for (int i = 0; i < quite_many; ++i) all.push_back(random_bits(key(i / 8), i % 8));
  return all;
}

TEST(RandomBits, OfNeighbouringRowsHeadsSequencesAndSeedsAreIndependent) {
  expect_independent(across([](int i) { return random_key(1, 0, 0, i); }),
                     across([](int i) { return random_key(1, 0, 0, i + 1); }));
  expect_independent(across([](int i) { return random_key(1, 0, 0, i); }),
                     across([](int i) { return random_key(1, 0, 1, i); }));
  expect_independent(across([](int i) { return random_key(1, 0, 0, i); }),
                     across([](int i) { return random_key(1, 1, 0, i); }));
  expect_independent(across([](int i) { return random_key(static_cast<std::uint64_t>(i)); }),
                     across([](int i) { return random_key(static_cast<std::uint64_t>(i) + 1); }));
}

// Keys that are no mixes at all, in either half.
TEST(RandomBits, OfKeysThatDifferInOneBitAreIndependent) {
  for (const int bit : {0, 1, 31, 32, 33, 63}) {
    SCOPED_TRACE(bit);
    expect_independent(stream(0, quite_many), stream(std::uint64_t{1} << bit, quite_many));
  }
}

TEST(RandomBits, DroppedNeighboursAreAsManyAsChanceHasIt) {
  for (const double chance : {0.1, 0.5}) {
    const auto threshold = static_cast<std::uint32_t>(chance * 4294967296.0);
    const auto is_dropped = [&](int row, int key) { return random_bits(random_key(3, 0, 0, row), key) < threshold; };
    // Pairs that share no weight.
    std::int64_t besides = 0, below = 0;
    constexpr int side = 1 << 11, pairs = side * side / 4;
    for (int row = 0; row < side; row += 2) {
      for (int key = 0; key < side; key += 2) {
        if (!is_dropped(row, key)) continue;
        besides += is_dropped(row, key + 1) ? 1 : 0;
        below += is_dropped(row + 1, key) ? 1 : 0;
      }
    }
    EXPECT_LT(deviations(besides, pairs, chance * chance), allowed);
    EXPECT_LT(deviations(below, pairs, chance * chance), allowed);
  }
}

}  // namespace
}  // namespace qkv::test
