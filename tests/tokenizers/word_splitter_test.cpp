// Checks the hand-written scanners against PCRE2 with the same patterns, on random text.
#include "megatron/tokenizers/word_splitter.h"

#include <gtest/gtest.h>

#include <random>

#include "megatron/tokenizers/patterns.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

std::vector<std::pair<std::size_t, std::size_t>> words_of(const WordSplitter& splitter,
                                                          const std::string& text) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  splitter.split(text, [&](std::span<const Span> words) {
    for (const Span& word : words) found.emplace_back(word.begin, word.end);
  });
  return found;
}

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> kParts = {
      " ",          "  ",     "\n",         "\r\n",    "\t", "\u00a0", "\u3000", "a",
      "B",          "\u01c5", "\u0294",     "\u0301",  "1",  "\u0663", "\u2160", "'s",
      "'S",         "'ll",    "'Ve",        "'\u017f", "'",  "/",      ".",      "\u4e2d",
      "\U0001F600", "\u1c8a", "\U00010d40", "ab",      "Ab", "AB",     "\x01",   "\u180e"};
  std::string text;
  for (auto i = random() % 24; i > 0; --i) {
    if (random() % 16 == 0) {
      auto c = static_cast<char32_t>(random() % 0x110000);
      if (c >= 0xD800 && c < 0xE000) c = 0x20000 + c;
      append_utf8(text, c);
    } else {
      text += kParts[random() % kParts.size()];
    }
  }
  return text;
}

class Scanners : public ::testing::TestWithParam<std::string_view> {};

TEST_P(Scanners, SplitAsTheRegularExpression) {
  const std::string pattern(GetParam());
  const WordSplitter splitter(pattern, RegexDialect::rust, "test");
  ASSERT_TRUE(splitter.is_scanner());
  const Regex regex(pattern, "test", RegexDialect::rust);
  Regex::Finder finder(regex);
  std::mt19937 random(11);
  for (int round = 0; round < 4000; ++round) {
    const std::string text = random_text(random);
    std::string storage;
    std::vector<Span> spans;
    finder.find_all(replace_unassigned_characters(text, storage), 0, spans);
    std::vector<std::pair<std::size_t, std::size_t>> expected;
    for (const Span& span : spans) expected.emplace_back(span.begin, span.end);
    ASSERT_EQ(words_of(splitter, text), expected) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, Scanners,
                         ::testing::Values(patterns::kGpt2, patterns::kR50kBase,
                                           patterns::kCl100kBase, patterns::kCl100kInJson,
                                           patterns::kLlama3, patterns::kQwen, patterns::kO200kBase,
                                           patterns::kTekken, patterns::kMegatronV1));

TEST(WordSplitter, LongTextComesInSeveralBatches) {
  const WordSplitter splitter(std::string(patterns::kLlama3), RegexDialect::rust, "test");
  std::string text;
  for (int i = 0; i < 1000; ++i) text += " word";
  EXPECT_EQ(words_of(splitter, text).size(), 1000u);
  EXPECT_EQ(words_of(splitter, text).back(), (std::pair<std::size_t, std::size_t>{4995, 5000}));
  EXPECT_TRUE(words_of(splitter, "").empty());
}

}  // namespace
}  // namespace megatron
