#include "train/splitter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/train/testing.h"
#include "train/utf8.h"

namespace pando {
namespace {

std::vector<std::string> Pieces(const std::string& pattern, std::string_view text) {
  auto splitter = Splitter::Create(pattern);
  EXPECT_TRUE(splitter.ok()) << splitter.status();
  Splitter::Cursor cursor(*splitter, text);
  std::vector<std::string> pieces;
  for (std::string_view piece; cursor.Next(&piece);) pieces.emplace_back(piece);
  EXPECT_TRUE(cursor.status().ok()) << cursor.status();
  return pieces;
}

using Strings = std::vector<std::string>;

// The examples of the GPT-2 encoder's own rules: contractions, one leading space, the last space of
// a run left to the next word.
TEST(Splitter, Gpt2Rules) {
  EXPECT_EQ(Pieces(kGpt2Pattern, "It's 42 o'clock!! We'LL"),
            (Strings{"It", "'s", " 42", " o", "'", "clock", "!!", " We", "'", "LL"}));
  EXPECT_EQ(Pieces(kGpt2Pattern, "a   b \n\n c  "),
            (Strings{"a", "  ", " b", " \n\n", " c", "  "}));
  EXPECT_EQ(Pieces(kGpt2Pattern, ""), Strings{});
}

// Every code point is a letter, number, space or other as in the engine under Hugging Face's
// tokenizers (classes.json), whatever Unicode the installed PCRE2 has up to 16.
TEST(Splitter, ClassesOfEveryCodePoint) {
  const auto classes = nlohmann::json::parse(ReadAll(TestData("classes.json")));
  std::vector<char> want(0x110000, 'o');
  for (const auto& [name, ranges] : classes.items()) {
    for (const auto& range : ranges) {
      for (int c = range[0]; c <= range[1]; ++c) want[c] = name[0];
    }
  }
  std::string text;
  for (int c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c > 0xDFFF) AppendUtf8(c, &text);
  }
  // Inside brackets and outside, each class and its complement. Every piece is of one kind, and
  // runs as far as its kind does, but for those that the last pattern takes one by one.
  for (const std::string pattern :
       {R"(\p{L}+|\p{N}+|\s+|[^\p{L}\p{N}\s]+)", R"([\p{L}]+|[\p{N}]+|[^\S]+|\S)"}) {
    char kind_before = 0;
    for (const std::string& piece : Pieces(pattern, text)) {
      const char kind = want[DecodeUtf8(piece).code_point];
      for (size_t i = 0; i < piece.size();) {
        const Utf8Char c = DecodeUtf8(std::string_view(piece).substr(i));
        ASSERT_EQ(want[c.code_point], kind) << pattern << " U+" << std::hex << c.code_point;
        i += c.length;
      }
      if (kind != 'o' || pattern.back() == '+') {
        ASSERT_NE(kind, kind_before) << piece;
      }
      kind_before = kind;
    }
  }
}

TEST(Splitter, InvalidBytesAreCutLikeControlCharacters) {
  const std::string text =
      "ab\xC3 \xFF\xFE"
      "12\xE2\x82";
  const std::string control =
      "ab\x01 \x01\x01"
      "12\x01\x01";
  const Strings pieces = Pieces(kGpt2Pattern, text);
  const Strings want = Pieces(kGpt2Pattern, control);
  ASSERT_EQ(pieces.size(), want.size());
  std::string joined;
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].size(), want[i].size());
    joined += pieces[i];
  }
  EXPECT_EQ(joined, text);
}

TEST(Splitter, TextBetweenMatchesIsAPiece) {
  EXPECT_EQ(Pieces("b+", "aabbcb"), (Strings{"aa", "bb", "c", "b"}));
}

TEST(Splitter, LongRuns) {
  const size_t n = 3 << 20;
  const Strings pieces =
      Pieces(kGpt2Pattern, std::string(n, ' ') + std::string(n, 'x') + std::string(n, '-'));
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].size(), n - 1);
  EXPECT_EQ(pieces[1].size(), n + 1);
  EXPECT_EQ(pieces[2].size(), n);
}

TEST(Splitter, BadPatternSaysWhere) {
  const auto splitter = Splitter::Create("a(b");
  ASSERT_FALSE(splitter.ok());
  EXPECT_NE(std::string(splitter.status().message()).find("a(b"), std::string::npos);
}

}  // namespace
}  // namespace pando
