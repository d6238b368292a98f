// tests/plot/terminal_text_test.cpp: labels that line up.
#include "plot/terminal_text.h"

#include <gtest/gtest.h>

namespace qkv::test {
namespace {

TEST(ColumnsOf, CharactersTakeTheColumnsThatATerminalGivesThem) {
  EXPECT_EQ(columns_of(""), 0);
  EXPECT_EQ(columns_of("größer"), 6);
  EXPECT_EQ(columns_of("e\u0301te\u0301"), 3);  // accents as marks of their own
  EXPECT_EQ(columns_of("日本"), 4);
  EXPECT_EQ(columns_of("한글"), 4);
  EXPECT_EQ(columns_of("😀"), 2);
  EXPECT_EQ(columns_of("Привет"), 6);
}

TEST(Clean, WhatWouldUpsetTheTerminalIsReplaced) {
  EXPECT_EQ(clean("a\x1b[2Jb\n", 99), "a�[2Jb�");
  EXPECT_EQ(clean("\xff\xc3", 99), "��");
  EXPECT_EQ(clean("\u202eabc", 99), "�abc");
  EXPECT_EQ(clean("naïve", 99), "naïve");
}

TEST(Clean, LongTextIsCutToTheLimitIncludingItsEllipsis) {
  EXPECT_EQ(clean("abcdef", 6), "abcdef");
  EXPECT_EQ(clean("abcdefg", 6), "abcde…");
  EXPECT_EQ(clean("日本語文", 6), "日本…");
  EXPECT_EQ(columns_of(clean("日本語文", 6)), 5);
}

TEST(Padded, SpacesFillUpToTheColumns) {
  EXPECT_EQ(padded("ä", 3, 0), "ä  ");
  EXPECT_EQ(padded("ä", 3, 1), "  ä");
  EXPECT_EQ(padded("ä", 3, 0.5), " ä ");
  EXPECT_EQ(padded("日", 5, 0.5), " 日  ");
  EXPECT_EQ(padded("long", 2, 0), "long");
}

}  // namespace
}  // namespace qkv::test
