#include "train/utf8.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (int32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(c, &text);
    const Utf8Char back = DecodeUtf8(text + "x");
    ASSERT_EQ(back.code_point, c);
    ASSERT_EQ(back.length, static_cast<int32_t>(text.size()));
  }
}

// Unicode 16, table 3-7: the well-formed byte sequences, and what lies just outside.
TEST(Utf8, IllFormedSequences) {
  for (const char* text :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x9F\xBF", "\xE2\x82",
        "\xE2(\xA1", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
        "\xF0\x9F\x98", "\xF5\x80\x80\x80", "\xFF"}) {
    const Utf8Char c = DecodeUtf8(text);
    EXPECT_EQ(c.code_point, -1) << text;
    EXPECT_EQ(c.length, 1) << text;
  }
  for (const char* text : {"\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xF0\x90\x80\x80",
                           "\xF4\x8F\xBF\xBF", "\xC2\x80"}) {
    EXPECT_GE(DecodeUtf8(text).code_point, 0x80) << text;
  }
}

TEST(Utf8, FindInvalid) {
  EXPECT_EQ(FindInvalidUtf8(""), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("plain ascii, longer than eight \xC3\xA9 bytes"),
            std::string_view::npos);
  const std::string bad = "twelve bytes\xFFmore\xC3";
  EXPECT_EQ(FindInvalidUtf8(bad), 12u);
  EXPECT_EQ(FindInvalidUtf8(bad, 13), 17u);
}

}  // namespace
}  // namespace pando
