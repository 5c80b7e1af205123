// Boundaries are worked out by hand; what they mean for merges is compared with merges of the
// whole.
#include "megatron/tokenizers/independent_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "megatron/tokenizers/byte_pair_ranks.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> parts_of(const IndependentParts& parts, std::string_view word) {
  std::vector<std::string> result;
  for (std::size_t begin = 0, end = 0; begin < word.size(); begin = end) {
    end = parts.part_end(word, begin);
    result.emplace_back(word.substr(begin, end - begin));
  }
  return result;
}

using Boundaries = IndependentParts::Boundaries;

IndependentParts with_tokens(const std::vector<std::string>& tokens,
                             Boundaries boundaries = Boundaries::beyond_ascii) {
  IndependentParts parts(boundaries);
  for (const std::string& token : tokens) parts.add(token);
  return parts;
}

TEST(IndependentParts, EndWhereNoTokenCanStand) {
  EXPECT_THAT(parts_of(with_tokens({}), "中文é"), ElementsAre("中", "文", "é"));
  EXPECT_THAT(parts_of(with_tokens({"中文"}), "中文中"), ElementsAre("中文", "中"));
  EXPECT_THAT(parts_of(with_tokens({"x中文y"}), "中文"), ElementsAre("中文"));
}

TEST(IndependentParts, AreWholeIfOnlyAsciiFollows) {
  EXPECT_THAT(parts_of(with_tokens({}), "don't 12"), ElementsAre("don't 12"));
  EXPECT_THAT(parts_of(with_tokens({}), "ab中cd"), ElementsAre("ab", "中", "cd"));
}

TEST(IndependentParts, LookAtThreeBytesOnEachSide) {
  const IndependentParts parts = with_tokens({"self.x", "name"}, Boundaries::all);
  EXPECT_THAT(parts_of(parts, "self.x"), ElementsAre("self.x"));
  EXPECT_THAT(parts_of(parts, "self.y"), ElementsAre("self", ".", "y"));
  EXPECT_THAT(parts_of(parts, "(name)"), ElementsAre("(", "name", ")"));
}

TEST(IndependentParts, AreNotDividedBetweenLowercaseLetters) {
  const IndependentParts parts = with_tokens({"ab", "cd", "eF"}, Boundaries::all);
  EXPECT_THAT(parts_of(parts, "abcd"), ElementsAre("ab", "cd"));  // no token has b and c together
  EXPECT_THAT(parts_of(with_tokens({"xbc", "ab", "cd"}, Boundaries::all), "abcd"),
              ElementsAre("abcd"));
  EXPECT_THAT(parts_of(with_tokens({"xBc", "aB", "cd"}, Boundaries::all), "aBcd"),
              ElementsAre("aB", "cd"));
}

TEST(IndependentParts, KnowTokensThatEndInsideCharacters) {
  const std::string text = "中文";  // E4 B8 AD, E6 96 87
  for (std::size_t begin = 0; begin < 3; ++begin)
    for (std::size_t end = 4; end <= 6; ++end)
      EXPECT_THAT(parts_of(with_tokens({text.substr(begin, end - begin)}), text), ElementsAre(text))
          << begin << " to " << end;
  EXPECT_THAT(parts_of(with_tokens({text.substr(2, 2)}), "中本"), ElementsAre("中本"));
  EXPECT_THAT(parts_of(with_tokens({text.substr(2, 2)}), "丮文"), ElementsAre("丮", "文"));
}

/// Every byte, and tokens that merges of random neighbors make.
BytePairRanks random_ranks(std::mt19937& random, std::vector<std::string>& tokens) {
  static const std::vector<std::string> kCharacters = {"a", "b", " ", "é", "è", "中", "文", "丮"};
  BytePairRanks ranks;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::string text;
  for (int i = 0; i < 60; ++i) text += kCharacters[random() % kCharacters.size()];
  std::vector<std::string> symbols;
  for (const char c : text) symbols.emplace_back(1, c);
  for (int i = 0; i < 40; ++i) {
    const std::size_t at = random() % (symbols.size() - 1);
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    if (std::find(tokens.begin(), tokens.end(), symbols[at]) == tokens.end())
      tokens.push_back(symbols[at]);
  }
  for (std::size_t i = 0; i < tokens.size(); ++i)
    ranks.add(tokens[i], static_cast<std::int32_t>(i));
  return ranks;
}

TEST(IndependentParts, MergeAsTheWholeWord) {
  static const std::vector<std::string> kCharacters = {"a", "b", "é", "è", "中", "文", "丮"};
  std::mt19937 random(3);
  int divided = 0;
  for (int turn = 0; turn < 300; ++turn) {
    const Boundaries boundaries = turn % 2 == 0 ? Boundaries::all : Boundaries::beyond_ascii;
    std::vector<std::string> tokens;
    const BytePairRanks ranks = random_ranks(random, tokens);
    const IndependentParts parts = with_tokens(tokens, boundaries);
    for (int i = 0; i < 20; ++i) {
      std::string word;
      for (int length = 0; length < 12; ++length) word += kCharacters[random() % 7];
      std::vector<std::int32_t> whole, together;
      ranks.merge(word, whole);
      const std::vector<std::string> pieces = parts_of(parts, word);
      for (const std::string& part : pieces) ranks.merge(part, together);
      EXPECT_EQ(together, whole) << word;
      divided += pieces.size() > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(divided, 1000);
}

}  // namespace
}  // namespace megatron
