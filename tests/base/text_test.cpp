// tests/base/text_test.cpp: characters of UTF-8, foreign text in messages, messages.
#include <clocale>
#include <locale>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/message.h"
#include "base/printable.h"
#include "base/utf8.h"

namespace qkv::test {
namespace {

using namespace std::string_literals;

TEST(FirstCharacter, CharactersOfEveryLengthAreRead) {
  const struct {
    std::string_view text;
    std::size_t bytes;
    char32_t code;
  } cases[] = {{"a", 1, U'a'},
               {"ä!", 2, U'ä'},
               {"€uro", 3, U'€'},
               {"😀", 4, U'😀'},
               {"\x7f", 1, 0x7f},
               {"\xc2\x80", 2, 0x80},
               {"\xdf\xbf", 2, 0x7ff},
               {"\xe0\xa0\x80", 3, 0x800},
               {"\xef\xbf\xbf", 3, 0xffff},
               {"\xf0\x90\x80\x80", 4, 0x10000},
               {"\xf4\x8f\xbf\xbf", 4, 0x10ffff}};
  for (const auto& c : cases) {
    const Utf8Character character = first_character(c.text);
    EXPECT_TRUE(character.valid) << c.text;
    EXPECT_EQ(character.bytes, c.bytes) << c.text;
    EXPECT_EQ(character.code, c.code) << c.text;
  }
}

TEST(FirstCharacter, WhatIsNotUtf8IsOneInvalidByte) {
  for (const std::string_view text :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xe2\x82", "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    const Utf8Character character = first_character(text);
    EXPECT_FALSE(character.valid) << printable(text);
    EXPECT_EQ(character.bytes, 1u) << printable(text);
  }
}

TEST(AppendUtf8, EveryCharacterIsReadBack) {
  for (const char32_t code : {0x0u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string text;
    append_utf8(text, code);
    const Utf8Character character = first_character(text);
    EXPECT_TRUE(character.valid) << static_cast<unsigned>(code);
    EXPECT_EQ(character.code, code);
    EXPECT_EQ(character.bytes, text.size());
  }
}

TEST(IsUtf8, AllCharactersMustBe) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("ä漢𝄞"));
  EXPECT_FALSE(is_utf8("ä\xff"));
  EXPECT_FALSE(is_utf8("abc\xe6\xbc"));
}

TEST(Printable, OrdinaryTextIsQuotedAndUnchanged) { EXPECT_EQ(printable("größe.npy"), "'größe.npy'"); }

TEST(Printable, WhatWouldBreakALineOrATerminalIsWrittenInHexadecimal) {
  EXPECT_EQ(printable("a\nb\x1b[2J"), "'a\\x0ab\\x1b[2J'");
  EXPECT_EQ(printable("\xff\xc3("), "'\\xff\\xc3('");
  EXPECT_EQ(printable("\u2028\u0085"), "'\\xe2\\x80\\xa8\\xc2\\x85'");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "'\\x00'");
}

TEST(Printable, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "'abcdef'");
  EXPECT_EQ(printable("abcdefg", 6), "'abcdef…'");
  EXPECT_EQ(printable("abcdeäg", 6), "'abcde…'");
}

struct Thousands : std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Message, ForeignTextIsQuotedAndCut) {
  EXPECT_EQ(message("name ", Quoted{"a\nb"}, "."), "name 'a\\x0ab'.");
  EXPECT_EQ(message(Quoted{std::string(300, 'x')}), "'" + std::string(200, 'x') + "…'");
}

TEST(Message, NumbersAreWrittenPlainlyWhateverTheProgramsLocale) {
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Thousands));
  const std::string text = message("T = ", 65536);
  std::locale::global(before);
  EXPECT_EQ(text, "T = 65536");
}

}  // namespace
}  // namespace qkv::test
