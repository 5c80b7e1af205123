// Tests Oniguruma's semantics; values from pre_tokenizers.Split of the `tokenizers` package.
#include "megatron/tokenizers/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/tokenizers/regex_syntax.h"
#include "megatron/tokenizers/unicode.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::string storage;
  std::vector<Span> spans;
  const Regex regex(pattern, "test");
  Regex::Finder(regex).find_all(replace_unassigned_characters(text, storage), 0, spans);
  std::vector<std::string> found;
  for (const Span& span : spans) found.push_back(text.substr(span.begin, span.end - span.begin));
  return found;
}

TEST(Regex, KnowsUnicode16) {
  EXPECT_THAT(matches(R"(\p{L}+)", "x\u1c89\U000105c0\U0002ebf0 y"),
              ElementsAre("x\u1c89\U000105c0\U0002ebf0", "y"));
  EXPECT_THAT(matches(R"(\p{N}+)", "1\U00010d40\U000116d0a"), ElementsAre("1\U00010d40\U000116d0"));
  EXPECT_THAT(matches(R"(\p{Han}+)", "\u3001\u65e5\U0002ebf0"), ElementsAre("\u65e5\U0002ebf0"));
}

TEST(Regex, SpaceIsWhiteSpaceOnly) {
  EXPECT_THAT(matches(R"(\s+)", "a\u180e\u200b \x1c\u3000"), ElementsAre(" ", "\u3000"));
}

TEST(Regex, RubyDialect) {
  EXPECT_THAT(matches(R"(\h+)", "0fAg"), ElementsAre("0fA"));
  EXPECT_THAT(matches("(?m:a.b)", "a\nb"), ElementsAre("a\nb"));
  EXPECT_THAT(matches("a.b", "a\nb a\rb"), ElementsAre("a\rb"));
  EXPECT_THAT(matches("^x", "x\nx"), ElementsAre("x", "x"));
  EXPECT_THAT(matches("[0-9]{1,2}+z", "12345z"), ElementsAre("12345z"));
  EXPECT_THAT(matches(R"([a\u00e9]+)", "a\u00e9b"), ElementsAre("a\u00e9"));
  EXPECT_THAT(matches("a*", "baac"), ElementsAre("", "aa", ""));
  EXPECT_THAT(matches("x*+x", "xxx"), ElementsAre());
}

TEST(Regex, RefusesWhatItCannotTranslate) {
  for (const char* pattern :
       {"[a-z&&[^b]]", "[a[bc]]", "a{2,3}+", "\\p{L", "(", "[z-a]", "\\p{Klingon}", R"([\W])"}) {
    try {
      Regex regex(pattern, "tokenizer.json: pre_tokenizer.pattern");
      FAIL() << pattern;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("tokenizer.json: pre_tokenizer.pattern"));
      EXPECT_THAT(error.what(), HasSubstr(pattern));
    }
  }
}

TEST(Regex, EscapesLiterals) {
  const std::string text = R"(a.b*[c]{d}(e)|f^g$h\i-&#~/)";
  EXPECT_THAT(matches(escape_regex(text), "x" + text + "y"), ElementsAre(text));
}

TEST(Regex, LongRunsNeedNoStack) {
  const std::string run(1 << 17, ' ');
  EXPECT_EQ(matches(R"(\s+(?!\S)|\s+|\S+)", run + "x").size(), 3u);
  EXPECT_EQ(matches("(?:a|b)+", std::string(1 << 17, 'a')).size(), 1u);
}

// 2^50 ways to divide the letters, none of which reaches the end.
TEST(Regex, GivesUpOnPatternsThatExplode) {
  std::string message;
  try {
    matches("(?:a+)+$", std::string(50, 'a') + "!");
  } catch (const UserError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("the tokenizer's pattern gave up on a text of 51 bytes"));
}

}  // namespace
}  // namespace megatron
