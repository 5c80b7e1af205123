// Tests Oniguruma's semantics; values from pre_tokenizers.Split of the `tokenizers` package.
#include "megatron/tokenizers/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "helpers.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
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

TEST(Regex, ClassesInClasses) {
  EXPECT_THAT(matches("[a[bc]]+", "xabcx"), ElementsAre("abc"));
  EXPECT_THAT(matches("[^a[bc]]+", "xabcy]"), ElementsAre("x", "y]"));
  EXPECT_THAT(matches("[a[^bc]]+", "xabcy"), ElementsAre("xa", "y"));
  EXPECT_THAT(matches("[^[^a]]", "xaa"), ElementsAre("a", "a"));
  EXPECT_THAT(matches("[[a]-c]+", "ab-c"), ElementsAre("a", "-c"));
  EXPECT_THAT(matches("[[b]a-]+", "ab-c"), ElementsAre("ab-"));
  EXPECT_THAT(matches(R"([\W]+)", "ab -c"), ElementsAre(" -"));
  EXPECT_THAT(matches("[.[a].]+", "xa.y"), ElementsAre("a."));
  EXPECT_THAT(matches(R"( ?[^(\s|[.,!?…。，、।۔،])]+)", "Hi (you), there"),
              ElementsAre("Hi", "you", " there"));
}

TEST(Regex, IntersectionsOfClasses) {
  EXPECT_THAT(matches("[a-z&&[^b]]+", "abc1"), ElementsAre("a", "c"));
  EXPECT_THAT(matches("[a-c&&b-z&&c]+", "abcd"), ElementsAre("c"));
  EXPECT_THAT(matches("[a-c&&[b-d]e]+", "abcde"), ElementsAre("bc"));
  EXPECT_THAT(matches("[^a-z&&[^b]]+", "abc1"), ElementsAre("b", "1"));
  EXPECT_THAT(matches("[ab&&^a]+", "ab^"), ElementsAre("a"));
  EXPECT_THAT(matches("[a&&]", "a&"), ElementsAre());
  EXPECT_THAT(matches("[a&b]+", "a&b&&"), ElementsAre("a&b&&"));
  EXPECT_THAT(matches("[^a&&b]+", "ab"), ElementsAre("ab"));
  EXPECT_THAT(matches("(?i)[a-c&&[^B]]+", "abcABCd"), ElementsAre("abcABC"));
  EXPECT_THAT(matches(R"([\p{L}\p{M}&&[^\p{Han}]]+)", "ab日cé本\u1c89"),
              ElementsAre("ab", "cé", "\u1c89"));
}

// regex.jsonl holds random classes and what the `tokenizers` package leaves of random texts.
TEST(Regex, ReadsRandomClassesAsTheRealPackage) {
  std::istringstream lines(read_file(testing::fixture("regex.jsonl")));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json json = parse_json(line, "regex.jsonl");
    const std::string text = json.at("text");
    const Regex regex(json.at("pattern"), "regex.jsonl");
    std::string storage;
    std::vector<Span> spans;
    Regex::Finder(regex).find_all(replace_unassigned_characters(text, storage), 0, spans);
    spans.push_back({text.size(), text.size()});
    std::vector<std::string> left;
    std::size_t done = 0;
    for (const Span& span : spans) {
      if (span.begin > done) left.push_back(text.substr(done, span.begin - done));
      done = span.end;
    }
    EXPECT_EQ(left, json.at("left").get<std::vector<std::string>>()) << line;
  }
  EXPECT_GE(count, 60u);
}

TEST(Regex, RefusesWhatItCannotTranslate) {
  for (const char* pattern : {"[a-[bc]]", "[a[b]", "a{2,3}+", "\\p{L", "(", "[z-a]", "\\p{Klingon}",
                              "[b&&\\p{Klingon}]"}) {
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
