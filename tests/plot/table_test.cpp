// tests/plot/table_test.cpp: tables that line up.
#include <string>

#include <gtest/gtest.h>

#include <qkv/plot.h>

namespace qkv::test {
namespace {

TEST(Table, ColumnsLineUpAndNumbersStandToTheRight) {
  EXPECT_EQ(table_text({{"name"}, {"size", true}, {"shape"}}, {{"größe", "1", "[2]"}, {"日", "1000", "[]"}}),
            "name   size  shape\n"
            "größe     1  [2]\n"
            "日     1000  []\n");
}

TEST(Table, ATableWithoutRowsIsItsTitles) { EXPECT_EQ(table_text({{"name"}, {"size", true}}, {}), "name  size\n"); }

TEST(Table, WhatWouldUpsetTheTerminalIsReplacedAndLongCellsAreCut) {
  EXPECT_EQ(table_text({{"n"}}, {{"a\x1b[2J\nb\xff"}}), "n\na�[2J�b�\n");
  EXPECT_EQ(table_text({{"n"}}, {{std::string(300, 'x')}}), "n\n" + std::string(199, 'x') + "…\n");
}

TEST(Table, ARowMayBeShorter) { EXPECT_EQ(table_text({{"a"}, {"b"}}, {{"1"}, {"", "2"}}), "a  b\n1\n   2\n"); }

}  // namespace
}  // namespace qkv::test
