// tests/base/aligned_test.cpp: aligned memory.
#include "base/aligned.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include <gtest/gtest.h>

namespace qkv::test {
namespace {

struct Free {
  void operator()(unsigned char* memory) const { free_aligned(memory); }
};
std::unique_ptr<unsigned char, Free> allocated(std::size_t bytes) {
  return std::unique_ptr<unsigned char, Free>(static_cast<unsigned char*>(allocate_aligned(bytes)));
}
std::uintptr_t address(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

constexpr std::size_t megabyte = std::size_t{1} << 20;

TEST(AllocateAligned, MemoryOfAnySizeIsZeroWritableAndAlignedTo64Bytes) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{65}, 4 * megabyte - 1,
                                  4 * megabyte, 4 * megabyte + 1, 7 * megabyte + 4097}) {
    const auto memory = allocated(bytes);
    EXPECT_EQ(address(memory.get()) % 64, 0u) << bytes;
    EXPECT_TRUE(std::all_of(memory.get(), memory.get() + bytes, [](unsigned char byte) { return byte == 0; })) << bytes;
    std::fill_n(memory.get(), bytes, static_cast<unsigned char>(0xa5));
  }
}

TEST(AllocateAligned, MemoryThatWasUsedBeforeIsZeroAgain) {
  for (int i = 0; i < 10; ++i) {
    const auto memory = allocated(1000);
    EXPECT_TRUE(std::all_of(memory.get(), memory.get() + 1000, [](unsigned char byte) { return byte == 0; }));
    std::fill_n(memory.get(), 1000, static_cast<unsigned char>(0xa5));
  }
}

TEST(AllocateAligned, From4MegabytesOnItStartsAtAHugePage) {
  EXPECT_EQ(address(allocated(4 * megabyte).get()) % (2 * megabyte), 0u);
  EXPECT_EQ(address(allocated(9 * megabyte + 1).get()) % (2 * megabyte), 0u);
}

TEST(AllocateAligned, NothingMayBeAllocatedAndFreed) {
  EXPECT_NE(allocated(0), nullptr);
  free_aligned(nullptr);
}

TEST(AllocateAligned, WhatNoMachineHasIsRefused) {
  EXPECT_THROW(allocated(std::numeric_limits<std::size_t>::max()), std::bad_alloc);
  EXPECT_THROW(allocated(std::numeric_limits<std::size_t>::max() / 2), std::bad_alloc);
}

TEST(AllocateDirty, FreedPiecesAreUsedAgainButNotForMuchLess) {
  constexpr std::size_t bytes = std::size_t{12} << 20;
  void* first = allocate_dirty(bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % alignment, 0u);
  free_aligned(first);
  void* small = allocate_dirty(bytes / 2);
  EXPECT_NE(small, first);
  void* second = allocate_dirty(bytes - 100);
  EXPECT_EQ(second, first);
  void* third = allocate_dirty(bytes);
  EXPECT_NE(third, second);
  for (void* memory : {small, second, third}) free_aligned(memory);
}

TEST(AllocateDirty, NoMoreThanAFewPiecesAreKept) {
  std::vector<void*> all;
  for (int i = 0; i < 40; ++i) all.push_back(allocate_dirty(std::size_t{5} << 20));
  for (void* memory : all) free_aligned(memory);
  free_aligned(allocate_dirty(std::size_t{100} << 20));  // too large to keep
  free_aligned(allocate_dirty(10));
  free_aligned(allocate_dirty(0));
}

TEST(Scratch, ItGrowsAndKeepsItsMemoryForSmallerWishes) {
  Scratch scratch;
  void* first = scratch.get(1000);
  EXPECT_EQ(address(first) % 64, 0u);
  EXPECT_EQ(scratch.get(10), first);
  EXPECT_EQ(scratch.get(1000), first);
  std::fill_n(static_cast<unsigned char*>(scratch.get(5 * megabyte)), 5 * megabyte, static_cast<unsigned char>(1));
  EXPECT_NE(scratch.get(0), nullptr);
}

TEST(Scratch, AfterAWishThatCannotBeMetItIsUsable) {
  Scratch scratch;
  scratch.get(100);
  EXPECT_THROW(scratch.get(std::numeric_limits<std::size_t>::max()), std::bad_alloc);
  std::fill_n(static_cast<unsigned char*>(scratch.get(50)), 50, static_cast<unsigned char>(1));
}

}  // namespace
}  // namespace qkv::test
