// The expected values are those of Python's bytes.decode('utf-8', errors='replace').
#include "megatron/tokenizers/utf8.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

#define FFFD "\xEF\xBF\xBD"

TEST(Utf8, LeavesValidTextAlone) {
  for (const char* text : {"", "plain ascii, longer than one block", "\xC2\x80", "\xED\x9F\xBF",
                           "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(replace_invalid_utf8(text), std::nullopt) << text;
}

TEST(Utf8, ReplacesMaximalInvalidParts) {
  const std::pair<std::string, std::string> cases[] = {
      {"a\xFF"
       "b",
       "a" FFFD "b"},
      {"\x80", FFFD},
      {"\xC0\x80", FFFD FFFD},
      {"\xC3", FFFD},
      {"\xC3(", FFFD "("},
      {"\xE2\x82", FFFD},
      {"\xE2\x82x", FFFD "x"},
      {"\xE0\x80\xAF", FFFD FFFD FFFD},
      {"\xED\xA0\x80", FFFD FFFD FFFD},
      {"\xF0\x9F\x98", FFFD},
      {"\xF0\x9F\x98\xC3\xA9", FFFD "\xC3\xA9"},
      {"\xF0\x80\x80\x80", FFFD FFFD FFFD FFFD},
      {"\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD},
      {"\xF5\x80", FFFD FFFD},
      {"12345678\xFE", "12345678" FFFD},
  };
  for (const auto& [bytes, text] : cases)
    EXPECT_EQ(replace_invalid_utf8(bytes), text) << ::testing::PrintToString(bytes);
}

TEST(Utf8, WalksBothWays) {
  std::string text;
  for (const char32_t c : {U'a', U'\u00e9', U'\u20ac', U'\U0001f600'}) append_utf8(text, c);
  std::size_t position = 0;
  std::u32string forward, backward;
  while (position < text.size()) forward += next_code_point(text, position);
  while (position > 0) backward += previous_code_point(text, position);
  EXPECT_EQ(forward, U"a\u00e9\u20ac\U0001f600");
  EXPECT_EQ(backward, U"\U0001f600\u20ac\u00e9a");
}

TEST(Utf8, FindsTheStartsOfCharacters) {
  EXPECT_EQ(character_starts("a\xE2\x82\xAC!"), (std::vector<std::size_t>{0, 1, 4, 5}));
}

}  // namespace
}  // namespace megatron
