// Regular expressions against PCRE2, and what they refuse.
#include "megatron/grammar/regex_syntax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/grammar_texts.h"
#include "megatron/base/pattern.h"
#include "megatron/tokenizers/utf8.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
constexpr auto kRegex = OutputConstraint::Kind::regex;

/// A random expression without what Unicode's classes of PCRE2 read otherwise.
std::string random_regex(std::mt19937& random, int depth) {
  const auto one_of = [&](std::initializer_list<const char*> values) {
    return std::string(*(values.begin() + random() % values.size()));
  };
  const auto atom = [&] {
    if (depth > 0 && random() % 4 == 0)
      return one_of({"(", "(?:", "(?<n>"}) + random_regex(random, depth - 1) + ")";
    return one_of({"a",     "b",    "ab",   "é",        "€",     "😀",   ".",   "\\.",
                   "\\x41", "[ab]", "[^a]", "[a-z0-9]", "[é-€]", "\\d", "\\s", "[\\d_]",
                   "[^b]",  "[]a]", "[a-]", "-",        " ",     "\\n"});
  };
  std::string text;
  for (std::uint32_t i = random() % 4; i-- > 0;) {
    text += atom();
    text += one_of({"", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "{2,3}?", "*?"});
  }
  if (depth > 0 && random() % 3 == 0) text += "|" + random_regex(random, depth - 1);
  return text;
}

bool pcre_matches(const std::string& pattern, std::string_view text) {
  const Pattern whole("\\A(?:" + pattern + ")\\z", Pattern::Anchors::text);
  return Pattern::Finder(whole).find(text).has_value();
}

TEST(RegexSyntax, AgreesWithPcre2) {
  std::mt19937 random(1);
  const std::shared_ptr<const TokenTrie> tokens = byte_tokens({"ab", "é", "aab"});
  int num_texts = 0, num_accepted = 0;
  for (int i = 0; i < 400; ++i) {
    std::string pattern = random_regex(random, 2);
    if (pattern.find("(?<n>") != pattern.rfind("(?<n>")) continue;  // a name twice
    SCOPED_TRACE(pattern);
    const auto grammar = grammar_of(kRegex, {pattern}, tokens);
    for (int k = 0; k < 5; ++k) {
      std::optional<std::string> text = random_text(*grammar, random, 60);
      if (!text) continue;
      ++num_texts;
      EXPECT_TRUE(grammar->accepts(*text)) << *text;
      EXPECT_TRUE(pcre_matches(pattern, *text)) << *text;
      for (int m = 0; m < 4; ++m) {  // mutations
        std::string other = *text;
        const std::size_t at = random() % (other.size() + 1);
        constexpr std::string_view kOthers = "abA09_ .-\n";
        if (random() % 2 == 0)
          other.insert(at, 1, kOthers[random() % kOthers.size()]);
        else if (at < other.size())
          other[at] = kOthers[random() % kOthers.size()];
        if (replace_invalid_utf8(other)) {
          EXPECT_FALSE(grammar->accepts(other));
          continue;
        }
        // Our dot is no end of a line, also of those that PCRE2's dot matches.
        if (other.find('\r') != std::string::npos || other.find("\u2028") != std::string::npos ||
            other.find("\u2029") != std::string::npos)
          continue;
        const bool accepts = grammar->accepts(other);
        num_accepted += accepts ? 1 : 0;
        EXPECT_EQ(accepts, pcre_matches(pattern, other)) << other;
      }
    }
  }
  EXPECT_GT(num_texts, 1000);
  EXPECT_GT(num_accepted, 100);
}

TEST(RegexSyntax, AnchorsFlagsAndLazyQuantifiers) {
  const auto accepts = [](const char* pattern, std::string_view text) {
    return grammar_of(kRegex, {pattern})->accepts(text);
  };
  EXPECT_TRUE(accepts("^ab$", "ab"));
  EXPECT_TRUE(accepts("^a|b$", "b"));
  EXPECT_TRUE(accepts("(?i)AbC[x]", "aBcX"));
  EXPECT_FALSE(accepts("(?i)[^a]", "A"));
  EXPECT_TRUE(accepts("a{2,3}?", "aaa"));
  EXPECT_FALSE(accepts("a{2,3}", "aaaa"));
  EXPECT_TRUE(accepts("a{,3}{", "aa{"));
  EXPECT_TRUE(accepts("x{a}", "x{a}"));
  EXPECT_TRUE(accepts("\\w\\W\\D[^\\s]", "_é--"));
  EXPECT_FALSE(accepts("\\w", "é"));
  EXPECT_FALSE(accepts(".", "\n"));
  EXPECT_TRUE(accepts("", ""));
  EXPECT_TRUE(accepts("\\u{1F600}\\u00e9", "😀é"));
}

TEST(RegexSyntax, RefusesByNameAndPosition) {
  const auto refusal = [](const char* pattern) {
    return message_of([&] { grammar_of(kRegex, {pattern}); });
  };
  EXPECT_THAT(refusal("ab(?=c)"), HasSubstr("position 2: a look-ahead is not supported"));
  EXPECT_THAT(refusal("(?<!a)b"), HasSubstr("a look-behind"));
  EXPECT_THAT(refusal("(a)\\1"), HasSubstr("a back reference"));
  EXPECT_THAT(refusal("a\\b"), HasSubstr("a word boundary"));
  EXPECT_THAT(refusal("\\p{L}"), HasSubstr("a Unicode property"));
  EXPECT_THAT(refusal("a^b"), HasSubstr("an anchor '^'"));
  EXPECT_THAT(refusal("(a$)"), HasSubstr("an anchor '$'"));
  EXPECT_THAT(refusal("(ab"), HasSubstr("a '(' without ')'"));
  EXPECT_THAT(refusal("ab)"), HasSubstr("a ')' without '('"));
  EXPECT_THAT(refusal("[ab"), HasSubstr("a '[' without ']'"));
  EXPECT_THAT(refusal("*a"), HasSubstr("a quantifier with nothing before it"));
  EXPECT_THAT(refusal("a++"), HasSubstr("a possessive quantifier"));
  EXPECT_THAT(refusal("[[:alpha:]]"), HasSubstr("a POSIX class"));
  EXPECT_THAT(refusal("((a{1000}){1000}){1000}"), HasSubstr("too large"));
  EXPECT_THAT(refusal("a[^\\x00-\\u{10FFFF}]"), HasSubstr("no text fits"));
}

}  // namespace
}  // namespace megatron
